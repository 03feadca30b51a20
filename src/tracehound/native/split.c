/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire.h"

#include "split.h"

struct cursor {
	const uint8_t *at;
	uint64_t left;
	uint32_t size; /* of the record at `at` */
	uint16_t kind;
};

/* Stands on the next record; false at the end, or where a size cannot be: what follows it cannot be
 * found. */
static inline bool stand(struct cursor *cursor)
{
	if (cursor->left < sizeof(struct record_header))
		return false;
	/* raw bytes need not be aligned */
	memcpy(&cursor->size, cursor->at + offsetof(struct record_header, size),
	       sizeof(cursor->size));
	memcpy(&cursor->kind, cursor->at + offsetof(struct record_header, kind),
	       sizeof(cursor->kind));
	return cursor->size >= sizeof(struct record_header) && cursor->size <= cursor->left;
}

static inline void step(struct cursor *cursor)
{
	uint64_t padded = ((uint64_t)cursor->size + 7) & ~7ull;

	if (padded > cursor->left)
		padded = cursor->left;
	cursor->at += padded;
	cursor->left -= padded;
}

static inline bool suits(const struct split_column *column, uint32_t size)
{
	return column->has_tail ? size >= column->fixed_size : size == column->fixed_size;
}

void split_count(const uint8_t *raw, uint64_t size, const uint8_t *column_of_kind, uint32_t columns,
		 struct split_column *column, struct split_damage *damage)
{
	struct cursor cursor = {raw, size, 0, 0};
	struct split_column *found;

	for (; stand(&cursor); step(&cursor)) {
		if (column_of_kind[cursor.kind] >= columns) {
			damage->unknown++;
			continue;
		}
		found = &column[column_of_kind[cursor.kind]];
		if (!suits(found, cursor.size)) {
			damage->damaged++;
			continue;
		}
		found->records++;
		found->tail_bytes += cursor.size - found->fixed_size;
	}
	damage->lost_bytes += cursor.left;
}

void split_fill(const uint8_t *raw, uint64_t size, const uint8_t *column_of_kind, uint32_t columns,
		struct split_column *column, uint32_t tick_column, int64_t *ticks)
{
	struct cursor cursor = {raw, size, 0, 0};
	struct split_column *found;
	uint32_t tail_size, number;

	for (uint32_t i = 0; i < columns; i++) {
		column[i].records = column[i].tail_bytes = 0;
		if (column[i].offsets)
			column[i].offsets[0] = 0;
	}
	for (; stand(&cursor); step(&cursor)) {
		number = column_of_kind[cursor.kind];
		if (number >= columns || !suits(&column[number], cursor.size))
			continue;
		if (number == tick_column)
			for (uint32_t i = 0; i < columns; i++)
				*ticks++ = column[i].records;
		found = &column[number];
		memcpy(found->fixed + found->records * found->fixed_size, cursor.at,
		       found->fixed_size);
		found->records++;
		if (!found->has_tail)
			continue;
		tail_size = cursor.size - found->fixed_size;
		memcpy(found->tails + found->tail_bytes, cursor.at + found->fixed_size, tail_size);
		found->tail_bytes += tail_size;
		found->offsets[found->records] = found->tail_bytes;
	}
}

/* The piece that holds a row. Rows are nearly in order, so it is mostly the last one again. */
static inline uint32_t find_piece(const struct gather_piece *piece, uint32_t pieces, uint32_t last,
				  int64_t row)
{
	while (row < piece[last].first)
		last--;
	while (last + 1 < pieces && row >= piece[last + 1].first)
		last++;
	return last;
}

int64_t gather_offsets(const struct gather_piece *piece, uint32_t pieces, const int64_t *rows,
		       int64_t n, int64_t *out_offsets)
{
	const int64_t *offsets;
	uint32_t from = 0;
	int64_t total = 0;

	out_offsets[0] = 0;
	for (int64_t i = 0; i < n; i++) {
		from = find_piece(piece, pieces, from, rows[i]);
		offsets = piece[from].offsets + (rows[i] - piece[from].first);
		total += offsets[1] - offsets[0];
		out_offsets[i + 1] = total;
	}
	return total;
}

void gather_rows(const struct gather_piece *piece, uint32_t pieces, const int64_t *rows, int64_t n,
		 uint32_t fixed_size, uint8_t *out_fixed, const int64_t *out_offsets,
		 uint8_t *out_tails)
{
	uint32_t from = 0;
	int64_t row;

	for (int64_t i = 0; i < n; i++) {
		from = find_piece(piece, pieces, from, rows[i]);
		row = rows[i] - piece[from].first;
		memcpy(out_fixed + i * fixed_size, piece[from].fixed + row * fixed_size,
		       fixed_size);
		if (out_offsets)
			memcpy(out_tails + out_offsets[i],
			       piece[from].tails + piece[from].offsets[row],
			       out_offsets[i + 1] - out_offsets[i]);
	}
}
