package policy

import "github.com/toold/toold/internal/tomltext"

func (p *parser) lint() []tomltext.Problem { return p.warnings }
