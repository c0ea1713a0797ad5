package main

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A command of the store.
type command struct {
	verb, key, value string
}

// What a call does: all of it at one moment.
type input struct {
	commands []command
}

// What a call has returned.
type output struct {
	results []*string
	// The store failed before the call returned.
	isMaybe bool
}

// arguments has the words of each command, its name included.
var arguments = map[string]int{"get": 2, "incr": 2, "len": 2, "del": 2, "set": 3, "append": 3}

func parse(words [][]string) ([]command, error) {
	if len(words) == 0 {
		return nil, errors.New("no commands")
	}
	var commands []command
	for _, words := range words {
		if len(words) == 0 || arguments[words[0]] != len(words) {
			return nil, fmt.Errorf("no command: %q", words)
		}
		next := command{verb: words[0], key: words[1]}
		if len(words) == 3 {
			next.value = words[2]
		}
		if strings.ContainsAny(next.key+next.value, separators) {
			return nil, fmt.Errorf("a key or value has bytes that keep those of a state apart: %q", words)
		}
		if len(commands) > 0 && group(next.key) != group(commands[0].key) {
			return nil, fmt.Errorf("keys of two groups: %q", words)
		}
		commands = append(commands, next)
	}
	return commands, nil
}

// A state is a text, so that states are compared as texts: the keys that have values, in order, each with its value.
const (
	afterKey   = "\x00"
	afterValue = "\x01"
	separators = afterKey + afterValue
)

func unpack(state string) map[string]string {
	values := map[string]string{}
	for _, entry := range strings.Split(state, afterValue) {
		if key, value, found := strings.Cut(entry, afterKey); found {
			values[key] = value
		}
	}
	return values
}

func pack(values map[string]string) string {
	entries := make([]string, 0, len(values))
	for key, value := range values {
		entries = append(entries, key+afterKey+value+afterValue)
	}
	sort.Strings(entries)
	return strings.Join(entries, "")
}

// do does one command. Returns its result; nil: there is none.
func do(values map[string]string, next command) *string {
	before, found := values[next.key]
	text := func(text string) *string { return &text }
	number := func(number int) *string { return text(strconv.Itoa(number)) }
	switch next.verb {
	case "get":
		if !found {
			return nil
		}
		return &before
	case "len":
		return number(len(before))
	case "set":
		values[next.key] = next.value
		return text("OK")
	case "append":
		values[next.key] = before + next.value
		return number(len(before) + len(next.value))
	case "del":
		delete(values, next.key)
		if found {
			return text("1")
		}
		return text("0")
	case "incr":
		now, err := strconv.Atoi(before)
		if found && err != nil {
			return text("not a number")
		}
		values[next.key] = strconv.Itoa(now + 1)
		return number(now + 1)
	}
	panic(next.verb)
}

func same(one, other *string) bool {
	if one == nil || other == nil {
		return one == other
	}
	return *one == *other
}

// step has the states after a call: one, if it has returned; that before it as well, if it has not.
func step(state, in, out interface{}) []interface{} {
	values, answer := unpack(state.(string)), out.(output)
	for at, next := range in.(input).commands {
		result := do(values, next)
		if !answer.isMaybe && !same(result, answer.results[at]) {
			return nil
		}
	}
	if answer.isMaybe {
		return []interface{}{pack(values), state}
	}
	return []interface{}{pack(values)}
}

// model is of one group of keys, which has none at first.
var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{""} },
	Step: step,
}).ToModel()

func describe(in, out interface{}) string {
	answer := out.(output)
	var parts []string
	for at, next := range in.(input).commands {
		result := "?"
		if !answer.isMaybe {
			result = "nothing"
			if answer.results[at] != nil {
				result = strconv.Quote(*answer.results[at])
			}
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", next.verb, next.key, next.value))+" = "+result)
	}
	return strings.Join(parts, "; ")
}
