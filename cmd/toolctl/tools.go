package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

var toolFormats = []string{"anthropic", "openai", "openai-responses", "gemini", "mcp"}

func newToolsCommand(a *app) *cobra.Command {
	var q client.ToolQuery
	var format string
	var absent bool
	c := &cobra.Command{
		Use:   "tools",
		Short: "List the tools and what they take",
		Long: `List the tools that a profile or a session may use. -o json prints their whole
descriptions and JSON Schemas; --format prints them as JSON in the shape that a
provider's API takes.`,
		Example: "  toolctl tools\n  toolctl tools --profile review --all\n  toolctl tools --session review -o json\n  toolctl tools --format anthropic > tools.json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), q.Session, func(cl *client.Client, session string) error {
				q.Session = session
				if format != "" {
					defs, err := cl.ToolsFormat(c.Context(), q, format)
					if err != nil {
						return err
					}
					return printJSON(a.stdout, defs)
				}
				set, err := cl.ToolSet(c.Context(), q)
				if err != nil {
					return err
				}
				if absent {
					return a.print(view{data: set, text: func(w io.Writer) { absentText(a, w, set) }})
				}
				return printTools(a, set.Items)
			})
		},
	}
	c.Flags().StringVar(&q.Profile, "profile", "", "only those that this profile may use")
	c.Flags().StringVar(&q.Session, "session", "", "only those that this session may use")
	c.Flags().BoolVar(&absent, "all", false, "say which tools are absent, and why")
	c.Flags().StringVar(&format, "format", "", strings.Join(toolFormats, ", "))
	c.MarkFlagsMutuallyExclusive("all", "format")
	_ = c.RegisterFlagCompletionFunc("profile", completeProfile)
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(toolFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	return c
}

// absentText prints all tools, with the reason for those that are absent.
func absentText(a *app, w io.Writer, set *client.ToolList) {
	t := a.newTable("no tools", "TOOL", "OFFERED", "WHY NOT")
	t.wraps = true
	for _, d := range set.Items {
		t.row(d.Name, "yes", "")
	}
	for _, d := range set.Absent {
		t.row(d.Name, "no", d.Why)
	}
	t.write(w)
}

func printTools(a *app, defs []client.ToolDefinition) error {
	t := a.newTable("no tools; toolctl tools --all says why each is absent", "TOOL", "INPUT", "DOES")
	t.wraps = true
	return printList(a, defs, func(x *client.ToolDefinition) string { return x.Name }, t, func(d *client.ToolDefinition) {
		t.row(d.Name, inputFields(d.InputSchema), firstSentence(d.Description))
	})
}

// inputFields lists the fields of a schema, the optional ones with "?".
func inputFields(schema json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return ""
	}
	fields := slices.Clone(s.Required)
	for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, p) {
			fields = append(fields, p+"?")
		}
	}
	return strings.Join(fields, " ")
}
