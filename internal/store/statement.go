package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// prepared has the statements of a connection, or of several, each prepared when it is
// first used. Their texts are constants, so there are only so many.
type prepared struct {
	on interface {
		PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
	}

	mu  sync.Mutex // guards all
	all map[string]*sql.Stmt
}

func (p *prepared) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stmt := p.all[text]; stmt != nil {
		return stmt, nil
	}
	stmt, err := p.on.PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", text, err)
	}
	if p.all == nil {
		p.all = make(map[string]*sql.Stmt)
	}
	p.all[text] = stmt
	return stmt, nil
}

func (p *prepared) exec(text string, args ...any) (sql.Result, error) {
	stmt, err := p.statement(context.Background(), text)
	if err != nil {
		return nil, err
	}
	return stmt.Exec(args...)
}

func (p *prepared) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := p.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (p *prepared) close() error {
	var errs []error
	for _, s := range p.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// naming puts before an error what was being done, when the function that defers it returns.
func naming(err *error, what string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", what, classify(*err))
	}
}

// scanner is the Scan of a row.
type scanner = func(into ...any) error

// column reads a row of one column.
func column[T any](scan scanner) (v T, err error) {
	err = scan(&v)
	return v, err
}

// each gives the rows of a query to use, until that fails.
func each[T any](ctx context.Context, p *prepared, text string, scan func(scanner) (T, error), use func(T) error, args ...any) error {
	rows, err := p.query(ctx, text, args...)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		v, err := scan(rows.Scan)
		if err != nil {
			return classify(err)
		}
		if err := use(v); err != nil {
			return err
		}
	}
	return classify(rows.Err())
}

// list reads all rows of a query.
func list[T any](ctx context.Context, p *prepared, text string, scan func(scanner) (T, error), args ...any) (all []T, err error) {
	err = each(ctx, p, text, scan, func(v T) error {
		all = append(all, v)
		return nil
	}, args...)
	return all, err
}

// one reads the row of a query that gives one, ErrNotFound where it gives none.
func one[T any](ctx context.Context, p *prepared, text string, scan func(scanner) (T, error), args ...any) (v T, err error) {
	all, err := list(ctx, p, text, scan, args...)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return v, err
	}
	return all[0], nil
}
