package policy

import "github.com/toold/toold/internal/tomltext"

type expectation struct{}

func (p *parser) expectation(n *tomltext.Node, t map[string]any) {}

func (p *parser) test() {}
