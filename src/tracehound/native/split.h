/* Raw records -> columns: fixed parts side by side, tails end to end. Reads nothing outside the raw
 * bytes. */

/* One kind of record. `offsets` has records + 1 entries, Arrow layout into `tails`; NULL where
 * has_tail is 0. */
struct split_column {
	uint32_t fixed_size;
	uint32_t has_tail;
	int64_t records;
	int64_t tail_bytes;
	uint8_t *fixed;
	int64_t *offsets;
	uint8_t *tails;
};

/* What could not be split: records of unknown kind, records whose size does not suit their kind,
 * bytes after a lie. */
struct split_damage {
	int64_t unknown;
	int64_t damaged;
	int64_t lost_bytes;
};

/* Counts records and tail bytes of each column. column_of_kind has an entry per kind number;
 * `columns` = unknown. */
void split_count(const uint8_t *raw, uint64_t size, const uint8_t *column_of_kind, uint32_t columns,
		 struct split_column *column, struct split_damage *damage);

/*
 * Fills what split_count has sized. At the n-th record of `tick_column`, row n of ticks (a row has
 * `columns` entries) gets how many records of each column came before it.
 */
void split_fill(const uint8_t *raw, uint64_t size, const uint8_t *column_of_kind, uint32_t columns,
		struct split_column *column, uint32_t tick_column, int64_t *ticks);

/* Some records of one kind; `first` is the row number of its first record among all pieces. */
struct gather_piece {
	const uint8_t *fixed;
	const int64_t *offsets;
	const uint8_t *tails;
	int64_t first;
};

/* Fills out_offsets[0..n] for the tails of rows[0..n) in that order; returns how many bytes they
 * are. */
int64_t gather_offsets(const struct gather_piece *piece, uint32_t pieces, const int64_t *rows,
		       int64_t n, int64_t *out_offsets);

/* Copies rows[0..n), and with out_offsets (not NULL) their tails, in that order. */
void gather_rows(const struct gather_piece *piece, uint32_t pieces, const int64_t *rows, int64_t n,
		 uint32_t fixed_size, uint8_t *out_fixed, const int64_t *out_offsets,
		 uint8_t *out_tails);
