// Command judge says whether the histories of clients of a durable store are linearizable, across the failures of the store.
//
//	judge FILE...
//
// A file has a line of JSON for each event, in any order; times are nanoseconds of one clock.
//
//	{"call": 10, "id": 1, "client": 0, "do": [["set", "a:x", "v"], ["get", "a:y"]]}
//	{"return": 20, "id": 1, "results": ["OK", null]}
//	{"crash": 30, "until": 35}
//
// A call does its commands at one moment between its call and its return. One that has not returned when the store fails may have been done before
// the failure, as a whole, or never (durable linearizability). What returns while it fails counts as not returned: nothing leaves a machine without power. Keys with the same beginning, up to the colon, are one group; a call has keys of one group.
//
// The status: 0, all are linearizable; 1, one is not; 2, a file is no history, or has not been judged within the time.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long one group may take.
const patience = 5 * time.Minute

type event struct {
	Call    *int64     `json:"call"`
	Return  *int64     `json:"return"`
	Crash   *int64     `json:"crash"`
	Until   int64      `json:"until"`
	ID      int64      `json:"id"`
	Client  int        `json:"client"`
	Do      [][]string `json:"do"`
	Results []*string  `json:"results"`
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("give the files of histories"))
	}
	for _, path := range os.Args[1:] {
		operations, crashes, err := read(path)
		if err != nil {
			fail(fmt.Errorf("%s: %w", path, err))
		}
		judge(path, operations, crashes)
	}
}

func fail(why error) {
	fmt.Fprintln(os.Stderr, "judge:", why)
	os.Exit(2)
}

// judge says what a history is. It ends the program if it is not linearizable.
func judge(path string, operations []porcupine.Operation, crashes int) {
	groups, maybe := partition(operations), 0
	for _, operation := range operations {
		if operation.Output.(output).isMaybe {
			maybe++
		}
	}
	for _, group := range groups {
		switch porcupine.CheckOperationsTimeout(model, group, patience) {
		case porcupine.Ok:
		case porcupine.Unknown:
			fail(fmt.Errorf("%s: group %s: not judged in %v", path, groupOf(group[0]), patience))
		default:
			fmt.Printf("%s: group %s is not linearizable:\n", path, groupOf(group[0]))
			explain(shrink(group))
			os.Exit(1)
		}
	}
	fmt.Printf("%s: linearizable: %d calls of %d groups, %d failures, %d calls without a return\n",
		path, len(operations), len(groups), crashes, maybe)
}

// shrink finds the shortest beginning of a group that is not linearizable.
func shrink(group []porcupine.Operation) []porcupine.Operation {
	sort.SliceStable(group, func(a, b int) bool { return group[a].Return < group[b].Return })
	end := sort.Search(len(group), func(count int) bool {
		return porcupine.CheckOperationsTimeout(model, group[:count+1], patience) == porcupine.Illegal
	})
	if end == len(group) {
		return group
	}
	return group[:end+1]
}

// explain prints the end of a group, the last call of which fits none of the orders.
func explain(group []porcupine.Operation) {
	const most = 40
	if len(group) > most {
		fmt.Printf("  ... %d calls before\n", len(group)-most)
		group = group[len(group)-most:]
	}
	for _, operation := range group {
		fmt.Printf("  client %d, %d to %d: %s\n", operation.ClientId, operation.Call, operation.Return,
			describe(operation.Input, operation.Output))
	}
}

// read reads a history.
func read(path string) ([]porcupine.Operation, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	var crashes []event
	calls, returns := map[int64]event{}, map[int64]event{}
	lines := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadString('\n')
		if line == "" {
			break
		}
		// A program that was killed may have written a part of its last line.
		if err != nil && !json.Valid([]byte(line)) {
			break
		}
		var read event
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case read.Crash != nil:
			crashes = append(crashes, read)
		case read.Call != nil:
			if _, known := calls[read.ID]; known {
				return nil, 0, fmt.Errorf("line %d: call %d is there twice", number, read.ID)
			}
			calls[read.ID] = read
		case read.Return != nil:
			if _, known := returns[read.ID]; known {
				return nil, 0, fmt.Errorf("line %d: call %d returns twice", number, read.ID)
			}
			returns[read.ID] = read
		default:
			return nil, 0, fmt.Errorf("line %d: no event", number)
		}
	}
	if len(calls) == 0 {
		return nil, 0, errors.New("no calls")
	}
	sort.Slice(crashes, func(a, b int) bool { return *crashes[a].Crash < *crashes[b].Crash })
	operations, err := pair(calls, returns, crashes)
	return operations, len(crashes), err
}

// pair makes operations of calls and their returns.
func pair(calls, returns map[int64]event, crashes []event) ([]porcupine.Operation, error) {
	var operations []porcupine.Operation
	for id, call := range calls {
		commands, err := parse(call.Do)
		if err != nil {
			return nil, fmt.Errorf("call %d: %w", id, err)
		}
		operation := porcupine.Operation{ClientId: call.Client, Input: input{commands}, Call: *call.Call}
		answer, returned := returns[id]
		at := sort.Search(len(crashes), func(at int) bool { return crashes[at].Until >= *call.Call })
		if returned && (at == len(crashes) || *answer.Return <= *crashes[at].Crash) {
			if *answer.Return < *call.Call || len(answer.Results) != len(commands) {
				return nil, fmt.Errorf("call %d: its return does not fit", id)
			}
			operation.Return, operation.Output = *answer.Return, output{results: answer.Results}
		} else {
			if at == len(crashes) {
				return nil, fmt.Errorf("call %d: neither a return nor a failure after it", id)
			}
			operation.Return, operation.Output = crashes[at].Until, output{isMaybe: true}
		}
		operations = append(operations, operation)
	}
	for id := range returns {
		if _, known := calls[id]; !known {
			return nil, fmt.Errorf("call %d: a return without a call", id)
		}
	}
	return operations, nil
}

// partition has the operations of each group for themselves.
func partition(operations []porcupine.Operation) [][]porcupine.Operation {
	groups := map[string][]porcupine.Operation{}
	for _, operation := range operations {
		group := groupOf(operation)
		groups[group] = append(groups[group], operation)
	}
	var all [][]porcupine.Operation
	for _, group := range groups {
		all = append(all, group)
	}
	return all
}

func groupOf(operation porcupine.Operation) string {
	return group(operation.Input.(input).commands[0].key)
}

func group(key string) string {
	name, _, _ := strings.Cut(key, ":")
	return name
}
