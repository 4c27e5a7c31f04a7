// Prints what Go makes of templates and expansions: a line of JSON for each line of JSON that comes in. With it
// the answers in cases.json were made: `go run main.go < questions`.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"text/template"
)

type fields struct {
	Series            string
	LabelMatchers     string
	LabelValuesByName map[string]string
	GroupBy           string
	GroupBySlice      []string
}

type question struct {
	Template string
	Data     fields

	Pattern, As, Name string
}

func rendered(q question) (string, error) {
	parsed, err := template.New("query").Delims("<<", ">>").Parse(q.Template)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, q.Data)
	return text.String(), err
}

func expanded(q question) (string, error) {
	pattern, err := regexp.Compile(q.Pattern)
	if err != nil {
		return "", err
	}
	match := pattern.FindStringSubmatchIndex(q.Name)
	if match == nil {
		return "", fmt.Errorf("no match")
	}
	return string(pattern.ExpandString(nil, q.As, q.Name, match)), nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			panic(err)
		}
		answer := rendered
		if q.Pattern != "" {
			answer = expanded
		}
		text, err := answer(q)
		told, _ := json.Marshal(map[string]any{"text": text, "failed": err != nil})
		fmt.Println(string(told))
	}
}
