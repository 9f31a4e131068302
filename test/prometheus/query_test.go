package prometheus

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sample is one series of an answer.
type sample struct {
	labels map[string]string
	value  float64
}

// get asks Prometheus' API and decodes the data of its answer.
func (s *server) get(path string, data any) error {
	resp, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var a struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if a.Status != "success" {
		return fmt.Errorf("%s: %s", a.Status, a.Error)
	}
	return json.Unmarshal(a.Data, data)
}

// query evaluates an expression now.
func (s *server) query(expr string) ([]sample, error) {
	var data struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	if data.ResultType != "vector" {
		return nil, fmt.Errorf("the result is a %s and no vector", data.ResultType)
	}
	var all []sample
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, sample{r.Metric, v})
	}
	return all, nil
}

// finite reports whether some value is a number: a quantile over no events is none.
func finite(all []sample) bool {
	for _, v := range all {
		if !math.IsNaN(v.value) && !math.IsInf(v.value, 0) {
			return true
		}
	}
	return false
}

// rule is an alert as Prometheus has loaded it.
type rule struct {
	Name, Query, Health, LastError string
	Annotations, Labels            map[string]string
}

func (s *server) rules() ([]rule, error) {
	var data struct{ Groups []struct{ Rules []rule } }
	if err := s.get("/api/v1/rules", &data); err != nil {
		return nil, err
	}
	var all []rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// dashboard is what the tests look at of a Grafana dashboard.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Annotations   struct{ List []struct{ Name, Expr string } }
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource *datasource
		}
	}
}

type datasource struct{ Type, UID string }

type panel struct {
	ID          int
	Title, Type string
	Datasource  *datasource
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		Datasource                *datasource
		Expr, LegendFormat, RefID string
	}
}

func loadDashboard(t *testing.T) *dashboard {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(deploy, "grafana", "toold.json"))
	must(t, err)
	var d dashboard
	must(t, json.Unmarshal(b, &d))
	return &d
}

// variables fills in what Grafana would.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$tenant", ".*")
