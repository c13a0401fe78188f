// The operations of `mwbench store`, by etcd's own client: store_etcd ENDPOINT COUNT SIZE
//
// Each is what a user of that client writes for it; etcd knows no add and no compare_set.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
)

const prefix = "store_etcd/"
const limit = 5 * time.Minute

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func add(ctx context.Context, c *clientv3.Client, key string) error {
	for {
		seen, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		number, revision := 0, int64(0)
		if len(seen.Kvs) > 0 {
			number, _ = strconv.Atoi(string(seen.Kvs[0].Value))
			revision = seen.Kvs[0].ModRevision
		}
		done, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, strconv.Itoa(number+1))).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
}

func compareSet(ctx context.Context, c *clientv3.Client, key, expected, value string) error {
	_, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), "=", expected)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	return err
}

func timed(operation string, count int, do func(int) error) {
	var took []float64
	for i := -count / 10; i < count; i++ {
		begin := time.Now()
		check(do(i))
		// The first of them make the connection.
		if i >= 0 {
			took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
		}
	}
	sort.Float64s(took)
	row := map[string]interface{}{"operation": operation, "p50_us": took[len(took)/2], "p99_us": took[len(took)*99/100]}
	check(json.NewEncoder(os.Stdout).Encode(row))
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	check(err)
	size, err := strconv.Atoi(os.Args[3])
	check(err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 20 * time.Second})
	check(err)
	// For all of it: an etcd that does not answer ends the program.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	value := strings.Repeat("v", size)
	key, before := prefix+"key", "-1 "+value
	_, err = c.Put(ctx, key, value)
	check(err)
	_, err = c.Put(ctx, prefix+"compare", before)
	check(err)
	timed("get", count, func(int) error { _, err := c.Get(ctx, key); return err })
	timed("set", count, func(int) error { _, err := c.Put(ctx, prefix+"set", value); return err })
	timed("add", count, func(int) error { return add(ctx, c, prefix+"add") })
	timed("check", count, func(int) error { _, err := c.Get(ctx, key, clientv3.WithCountOnly()); return err })
	timed("compare_set", count, func(i int) error {
		after := fmt.Sprint(i, " ", value)
		err := compareSet(ctx, c, prefix+"compare", before, after)
		before = after
		return err
	})
}
