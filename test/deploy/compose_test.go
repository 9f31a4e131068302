package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// files is where what is tested here stands.
const files = "../../deploy/docker"

// compose is as much of the Compose format as our files use; they may use no more,
// so that nothing in them goes untested.
type compose struct {
	Name     string             `yaml:"name"`
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Image string `yaml:"image"`
	Build struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
	Command         []string          `yaml:"command"`
	Hostname        string            `yaml:"hostname"`
	Restart         string            `yaml:"restart"`
	StopGracePeriod string            `yaml:"stop_grace_period"`
	PID             string            `yaml:"pid"`
	Cgroup          string            `yaml:"cgroup"`
	CapDrop         []string          `yaml:"cap_drop"`
	CapAdd          []string          `yaml:"cap_add"`
	SecurityOpt     []string          `yaml:"security_opt"`
	ReadOnly        bool              `yaml:"read_only"`
	Ports           []string          `yaml:"ports"`
	Volumes         []string          `yaml:"volumes"`
	Environment     map[string]string `yaml:"environment"`
	DependsOn       []string          `yaml:"depends_on"`
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)(?::([-?])([^}]*))?\}`)

// readCompose reads a file with these variables.
func readCompose(t *testing.T, name string, env map[string]string) compose {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(files, name))
	must(t, err)
	text = variable.ReplaceAllFunc(text, func(m []byte) []byte {
		part := variable.FindSubmatch(m)
		if v, ok := env[string(part[1])]; ok {
			return []byte(v)
		}
		if string(part[2]) != "-" {
			t.Fatalf("%s: %s has no value: %s", name, part[1], part[3])
		}
		return part[3]
	})
	var c compose
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// bind is a volume of a service: where from, where to.
type bind struct{ source, target, mode string }

func binds(t *testing.T, s service) (all []bind) {
	t.Helper()
	for _, v := range s.Volumes {
		part := strings.Split(v, ":")
		if len(part) < 2 || len(part) > 3 || len(part) == 3 && part[2] != "ro" {
			t.Fatalf("volume %q: want source:target or source:target:ro", v)
		}
		all = append(all, bind{part[0], part[1], strings.Join(part[2:], "")})
	}
	return all
}

// password lets the whole file be read.
var password = map[string]string{"GRAFANA_PASSWORD": "secret"}

func TestComposeNamesWhatIsThere(t *testing.T) {
	c := readCompose(t, "compose.yaml", password)
	for name, s := range c.Services {
		for _, b := range binds(t, s) {
			switch {
			case strings.HasPrefix(b.source, "."):
				if _, err := os.Stat(filepath.Join(files, b.source)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if b.mode != "ro" {
					t.Errorf("%s may write to %s of the source", name, b.source)
				}
			case filepath.IsAbs(b.source):
				if b.source != b.target {
					t.Errorf("%s: %s is %s inside: toold and the host must call it the same", name, b.source, b.target)
				}
			default:
				if _, ok := c.Volumes[b.source]; !ok {
					t.Errorf("%s: volume %s is not declared", name, b.source)
				}
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to the network", name, p)
			}
		}
		for _, d := range s.DependsOn {
			if _, ok := c.Services[d]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, d)
			}
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("%s keeps capabilities that nobody thought of: drop ALL, add those that it needs", name)
		}
	}
	built := c.Services["toold"].Build
	if _, err := os.Stat(filepath.Join(files, built.Context, built.Dockerfile)); err != nil {
		t.Error(err)
	}
	if len(c.Services["toold"].Ports) > 0 {
		t.Error("toold serves a port")
	}
}

// TestGrafanaIsGivenTheDashboard follows the files: the provider looks where the
// dashboard is mounted, and the data source is the service.
func TestGrafanaIsGivenTheDashboard(t *testing.T) {
	c := readCompose(t, "compose.yaml", password)
	mounted := map[string]string{}
	for _, b := range binds(t, c.Services["grafana"]) {
		mounted[b.target] = b.source
	}
	var provider struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name            string
			Type            string
			DisableDeletion bool              `yaml:"disableDeletion"`
			AllowUpdates    bool              `yaml:"allowUiUpdates"`
			Options         map[string]string `yaml:"options"`
		}
	}
	var source struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, Access, URL string
			IsDefault               bool `yaml:"isDefault"`
			Editable                bool
		}
	}
	for target, v := range map[string]any{
		"/etc/grafana/provisioning/dashboards/toold.yml":  &provider,
		"/etc/grafana/provisioning/datasources/toold.yml": &source,
	} {
		text, err := os.ReadFile(filepath.Join(files, mounted[target]))
		must(t, err)
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		must(t, d.Decode(v))
	}
	dir := provider.Providers[0].Options["path"]
	home := c.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	text, err := os.ReadFile(filepath.Join(files, mounted[dir], strings.TrimPrefix(home, dir)))
	if err != nil || mounted[dir] == "" {
		t.Errorf("the home dashboard %s is not where the provider looks, %s: %v", home, dir, err)
	}
	if !json.Valid(text) {
		t.Error("the dashboard is no JSON")
	}
	if got, want := source.Datasources[0].URL, "http://prometheus:9090"; got != want || c.Services["prometheus"].Image == "" {
		t.Errorf("the data source is %s, want %s", got, want)
	}
}

// TestPrometheusTakesItsFiles asks the real promtool, with the files where the
// container has them.
func TestPrometheusTakesItsFiles(t *testing.T) {
	promtool := program(t, "promtool")
	if promtool == "" {
		t.Skip("there is no promtool: scripts/install-prometheus")
	}
	dir := t.TempDir()
	for _, b := range binds(t, readCompose(t, "compose.yaml", password).Services["prometheus"]) {
		if b.mode != "ro" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(files, b.source))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(b.target)), text, 0o600))
	}
	if out, err := exec.Command(promtool, "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// program is one that was built, or of this host; "" where there is none.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"../../bin", "../../bin/engine"} {
		own, err := filepath.Abs(filepath.Join(dir, name))
		must(t, err)
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	path, _ := exec.LookPath(name)
	return path
}

// overlaid is a file with another that goes over it, as docker compose -f a -f b
// does: lists are longer, maps have more.
func overlaid(t *testing.T, base, over string, env map[string]string) compose {
	t.Helper()
	c, o := readCompose(t, base, env), readCompose(t, over, env)
	for name, s := range o.Services {
		under, ok := c.Services[name]
		if !ok || s.Image != "" || s.Command != nil || s.CapDrop != nil {
			t.Fatalf("%s: service %s does more than add volumes and variables", over, name)
		}
		under.Volumes = append(slices.Clone(under.Volumes), s.Volumes...)
		if under.Environment == nil {
			under.Environment = map[string]string{}
		}
		maps.Copy(under.Environment, s.Environment)
		c.Services[name] = under
	}
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// String says what is bound, as a flag would.
func (b bind) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s:%s:%s", b.source, b.target, b.mode), ":")
}
