// A client of PostgreSQL by database/sql and lib/pq: postgresql_go URL ROUNDS. Statements without and with parameters,
// one prepared, and two errors of each kind of protocol; errors do not end it.
package main

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"

	_ "github.com/lib/pq"
)

func main() {
	rounds, err := strconv.Atoi(os.Args[2])
	check(err)
	db, err := sql.Open("postgres", os.Args[1])
	check(err)
	db.SetMaxOpenConns(2)
	prepared, err := db.Prepare("select name from things where id = $1")
	check(err)
	for i := 0; i < rounds; i++ {
		_, err = db.Exec("insert into things (id, name) values ($1, $2)", i, "thing")
		check(err)
		var name string
		check(prepared.QueryRow(i).Scan(&name))
		check(db.QueryRow("select name from things where id = " + strconv.Itoa(i)).Scan(&name))
	}
	for i := 0; i < 2; i++ {
		if _, err = db.Exec("insert into things (id, name) values ($1, $2)", 0, "again"); err == nil {
			os.Exit(2)
		}
		if _, err = db.Exec("select 1/0"); err == nil {
			os.Exit(2)
		}
	}
	fmt.Println("done")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
