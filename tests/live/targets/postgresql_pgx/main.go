// A client of PostgreSQL by pgx: postgresql_pgx URL ROUNDS. Statements with parameters, a batch, and two errors of each
// kind, in the way that default_query_exec_mode in the URL says; errors do not end it.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
)

func main() {
	rounds, err := strconv.Atoi(os.Args[2])
	check(err)
	all := context.Background()
	db, err := pgx.Connect(all, os.Args[1])
	check(err)
	for i := 0; i < rounds; i++ {
		_, err = db.Exec(all, "insert into things (id, name) values ($1, $2)", i, "thing")
		check(err)
		var name string
		check(db.QueryRow(all, "select name from things where id = $1", i).Scan(&name))
	}
	batch := &pgx.Batch{}
	for i := 0; i < rounds; i++ {
		batch.Queue("update things set name = $1 where id = $2", "other", i)
	}
	check(db.SendBatch(all, batch).Close())
	for i := 0; i < 2; i++ {
		if _, err = db.Exec(all, "insert into things (id, name) values ($1, $2)", 0, "again"); err == nil {
			os.Exit(2)
		}
		if _, err = db.Exec(all, "select 1/0"); err == nil {
			os.Exit(2)
		}
	}
	check(db.Close(all))
	fmt.Println("done")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
