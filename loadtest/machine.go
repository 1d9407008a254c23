package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// machine says what this runs on, as far as Linux tells.
func machine() string {
	parts := []string{fmt.Sprintf("%d cores", runtime.NumCPU())}
	if model := line("/proc/cpuinfo", "model name"); model != "" {
		parts = append([]string{model}, parts...)
	}
	if kib, err := strconv.Atoi(strings.TrimSuffix(line("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20)))
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(release)))
	}
	return strings.Join(parts, ", ")
}

// line returns the value of the first line "name: value" of a file.
func line(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// versions says which compiler made the programs, and of which source.
func versions(ctx context.Context) []string {
	out := []string{runtime.Version()}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return out
	}
	text := "octopay " + strings.TrimSpace(string(commit))
	if changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output(); err == nil && len(changed) > 0 {
		text += " with changes"
	}
	return append(out, text)
}
