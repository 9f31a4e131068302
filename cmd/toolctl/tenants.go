package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// An admin acts for the tenant "default", or for that of --tenant. What admins look at is of
// all tenants: "none" would be an untrue answer about a daemon whose tenants are at work. A
// program that reads -o json, and whatever changes something, gets one tenant's as ever, and
// a word on stderr about how much there is of others.

// allTenantsFlag gives a command -A. what says what it does there.
func (a *app) allTenantsFlag(c *cobra.Command, what string) {
	c.Flags().BoolVarP(&a.allTenants, "all-tenants", "A", false, what+", for admins")
}

// checkTenants refuses -A beside what names one tenant.
func (a *app) checkTenants() error {
	switch {
	case !a.allTenants:
	case a.tenant != "":
		return usagef("-A is about all tenants and --tenant about one: leave one of them out")
	case a.credential() != "":
		return usagef("-A is for admins: leave the session's token out (--token, TOOLD_TOKEN)")
	}
	return nil
}

// own is the tenant that a acts for, as far as it can be told: that of an admin.
func (a *app) own() string {
	if a.tenant != "" {
		return a.tenant
	}
	return auth.DefaultTenant
}

// wantsAll reports whether a shows what all tenants have, where it may.
func (a *app) wantsAll() bool {
	return a.allTenants || a.format == formatTable && a.oneself()
}

// oneself reports whether a acts with nothing but the rights of its user.
func (a *app) oneself() bool { return a.tenant == "" && a.credential() == "" }

// stranger reports whether what is of tenant is of another one than a's own.
func (a *app) stranger(tenant string) bool { return tenant != "" && tenant != a.own() }

// clientFor gives the client that acts for a tenant.
func (a *app) clientFor(tenant string) *client.Client {
	if !a.stranger(tenant) {
		return a.client()
	}
	of := *a
	of.tenant = tenant
	return of.client()
}

// refusesAll reports whether err is how a daemon answers who may not ask about all tenants: one
// that is no admin, or any where the daemon is older than the question.
func refusesAll(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && (e.Code == client.CodeForbidden || e.Code == client.CodeInvalidInput)
}

// ofTenants gives what is shown of a list: of all tenants to people who are admins, and else of
// one, with a word about the others. list reads it, and tenant tells whose an item is.
func ofTenants[T any](a *app, list func(all bool) ([]T, error), tenant func(*T) string, one string) ([]T, error) {
	if err := a.checkTenants(); err != nil {
		return nil, err
	}
	if !a.oneself() {
		return list(false)
	}
	items, err := list(true)
	if refusesAll(err) && !a.allTenants {
		return list(false)
	}
	if err != nil || a.wantsAll() {
		return items, err
	}
	return ownOf(a, items, tenant, one), nil
}

// ownOf leaves out what is of other tenants, with a word about it.
func ownOf[T any](a *app, items []T, tenant func(*T) string, one string) []T {
	others := 0
	items = slices.DeleteFunc(items, func(x T) bool {
		other := a.stranger(tenant(&x))
		if other {
			others++
		}
		return other
	})
	a.sayOthers(others, one)
	return items
}

// sayOthers tells of what is left out since it is of other tenants.
func (a *app) sayOthers(n int, one string) {
	if n > 0 {
		a.say("%s of other tenants left out: -A is about all tenants, --tenant NAME about one", plural(n, one))
	}
}

// printTenants is printList with a last column TENANT, where there is an item of another tenant
// than a's own.
func printTenants[T any](a *app, items []T, name, tenant func(*T) string, t *table, row func(*T)) error {
	if slices.IndexFunc(items, func(x T) bool { return a.stranger(tenant(&x)) }) < 0 {
		return printList(a, items, name, t, row)
	}
	t.column("TENANT")
	return printList(a, items, name, t, func(x *T) {
		row(x)
		t.add(tenant(x))
	})
}

// tenantSessions is listSessions of the tenants that are shown.
func (a *app) tenantSessions(ctx context.Context, q client.SessionQuery) ([]client.Session, error) {
	c := a.client()
	return ofTenants(a, func(all bool) ([]client.Session, error) {
		q.AllTenants = all
		return listSessions(ctx, c, q)
	}, sessionTenant, "session")
}

// changing gives the sessions that a command changes which is about all of them: those of the
// tenant that a acts for, and with -A of all tenants.
func (a *app) changing(ctx context.Context) ([]client.Session, error) {
	sessions, err := a.tenantSessions(ctx, client.SessionQuery{})
	if err != nil || a.allTenants || !a.wantsAll() {
		return sessions, err
	}
	return ownOf(a, sessions, sessionTenant, "session"), nil
}

func sessionTenant(s *client.Session) string { return s.Tenant }

func approvalTenant(x *client.Approval) string { return x.Tenant }

// elsewhereError says that what a command is about is another tenant's. What only looks goes on
// there; what changes something is told to name the tenant.
type elsewhereError struct {
	what, id, tenant string
}

// Error implements error.
func (e *elsewhereError) Error() string {
	return fmt.Sprintf("%s %s is of the tenant %s; to act for that: --tenant %s", e.what, line(e.id), line(e.tenant), line(e.tenant))
}

// elsewhere looks for a session among those of all tenants, for admins: by its id, the
// beginning of one, or its name where only one session has it. nil where there is none.
func (a *app) elsewhere(ctx context.Context, c *client.Client, ref string) *elsewhereError {
	if !a.oneself() {
		return nil
	}
	for _, over := range []bool{false, true} {
		sessions, err := listSessions(ctx, c, client.SessionQuery{All: over, AllTenants: true})
		if err != nil {
			return nil
		}
		var found []*client.Session
		for i := range sessions {
			s := &sessions[i]
			if s.ID == ref || s.Name == ref || len(ref) > len("ses_") && strings.HasPrefix(s.ID, ref) {
				found = append(found, s)
			}
		}
		if len(found) == 1 {
			return &elsewhereError{"session", found[0].ID, found[0].Tenant}
		}
	}
	return nil
}

// whose gives err; and where nothing was found of which list has one of another tenant, an error
// that names the tenant.
func whose[T any](a *app, err error, what, ref string, list func() ([]T, error), of func(*T) (id, tenant string)) error {
	if !isNotFound(err) || !a.oneself() {
		return err
	}
	items, lerr := list()
	if lerr != nil {
		return err
	}
	for i := range items {
		if id, tenant := of(&items[i]); strings.HasPrefix(id, ref) {
			return &elsewhereError{what, id, tenant}
		}
	}
	return err
}

// look does something that only looks at the session that ref means, in the tenant that has it.
func (a *app) look(ctx context.Context, ref string, do func(c *client.Client, ref string) error) error {
	c := a.client()
	err := a.withSession(ctx, c, ref, func(ref string) error { return do(c, ref) })
	if e, ok := errors.AsType[*elsewhereError](err); ok {
		return do(a.clientFor(e.tenant), e.id)
	}
	return err
}
