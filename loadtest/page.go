package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/octopay/octopay/loadtest/report"
)

// pageCmd makes the page of results again: they are kept as figures, and not twice.
type pageCmd struct {
	Files []string `arg:"" name:"file" help:"FILE.json, as a command wrote it; FILE.html is made beside it."`
}

// Run does it.
func (p pageCmd) Run(c console) error {
	for _, file := range p.Files {
		name, isJSON := strings.CutSuffix(file, ".json")
		if !isJSON {
			return usage("%s: its name must end with .json", file)
		}
		d, err := readDocument(file)
		if err != nil {
			return err
		}
		if err := put(name+".html", d.HTML); err != nil {
			return err
		}
		c.say("written: %s.html", filepath.Clean(name))
	}
	return nil
}

func readDocument(file string) (_ report.Document, err error) {
	f, err := os.Open(file)
	if err != nil {
		return report.Document{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return report.Read(f)
}
