/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is done at a point, of a function or of a system call: user space writes it
 * before the point is attached, nothing is compiled for it. Its operations are a range
 * of `call_operations`, which points that want the same share.
 */
#ifndef TRACEHOUND_CALL_POINT_H
#define TRACEHOUND_CALL_POINT_H

#include <linux/types.h>

enum call_limit {
	CALL_ARGUMENTS = 6,
	CALL_POINTS_MAX = 16384,
	CALL_OPERATIONS_MAX = 64, /* of one point */
	CALL_TABLE_MAX = 16384,	  /* of all points */
	CALL_TEXTS_MAX = 4096,
	CALL_TEXT_SIZE = 256,
	CALL_PIECE_MAX = 32768,
	CALL_STRINGS_MAX = 64, /* of one array */
	CALL_SCRATCHES = 4,    /* for each CPU; a program that sleeps keeps its own */
	CALL_KEY_SIZE = 32,
	CALL_SLOT_NEGATIVE = 65, /* of a histogram; others: the number of bits */
	CALL_GROUPS_MAX = 16384,
};

/* Where an operand is: a register, or OPERAND_RESULT + the number of an earlier operation. */
enum call_operand {
	OPERAND_ARGUMENT = 0, /* to 5; at the exit as they were at the entry */
	OPERAND_RETURN = 6,   /* the register that the return value is in */
	OPERAND_SP = 7,
	OPERAND_BP = 8,
	OPERAND_IP = 9,
	OPERAND_CALLER_IP = 10,
	OPERAND_OTHERS = 11, /* what compat.h copies of the architecture's other registers */
	OPERAND_DURATION = 60,
	OPERAND_PID = 61,
	OPERAND_TID = 62,
	OPERAND_RESULT = 64,
	OPERAND_CONSTANT = 0xff, /* 0 */
};

/* An operation's value is its base operand + offset. */
enum call_operation_kind {
	OPERATION_LOAD = 1,   /* result: the number of `size` bytes at that address */
	OPERATION_SET = 2,    /* result: the `size` low bytes of the value */
	OPERATION_VALUE = 3,  /* piece: the value, 8 bytes */
	OPERATION_STRING = 4, /* piece: text at that address, without its NUL, at most max */
	OPERATION_BUFFER = 5, /* piece: length operand * size bytes at that address, at most max;
				 length OPERAND_CONSTANT: always max */
	OPERATION_STD_STRING = 6, /* piece: std::string of libstdc++ at that address */
	OPERATION_CXX_STRING = 7, /* piece: the same of libc++ */
	OPERATION_STRINGS = 8, /* piece: at most `size` texts that an array of pointers there names,
				  each with its NUL, each at most max */
	OPERATION_MATCH_NUMBER = 9,  /* the value's `size` low bytes against `constant` */
	OPERATION_MATCH_BYTES = 10,  /* text `constant` against the last piece, from offset on */
	OPERATION_KEY_NUMBER = 11,   /* part of what is counted by: the value */
	OPERATION_KEY_PIECE = 12,    /* the same: the last piece, cut */
	OPERATION_KEY_COMM = 13,     /* the same: the thread's name */
	OPERATION_MATCH_CALLER = 15, /* the return address lies in the file with inode `constant`
					whose size ends with `max` */
	OPERATION_MEASURE = 14,	     /* the value that a histogram is of */
	OPERATION_VECTOR = 16, /* piece: of each of `length` iovecs at that address, `size` at most,
				  as many bytes as it has, at most max */
};

enum call_operation_flag {
	OPERATION_SIGNED = 1, /* of `size` bytes with a sign */
	MATCH_LESS = 2,
	MATCH_EQUAL = 4,
	MATCH_GREATER = 8,
	MATCH_BLACK = 16, /* a match filters the hit; else: no match in a group filters it */
	MATCH_WHOLE = 32, /* the piece has no more bytes than the text */
};

enum call_phase {
	CALL_AT_ENTRY = 0,
	CALL_AT_EXIT = 1,
};

struct call_operation {
	__u8 kind;
	__u8 phase;
	__u8 base;   /* enum call_operand */
	__u8 length; /* the same */
	__u8 size;
	__u8 flags;
	__u8 piece; /* its place among those of its record */
	__u8 group; /* of filters of which one must match: 0 to 63 */
	__s32 offset;
	__u32 max;
	__u64 constant;
};

enum call_point_flag {
	POINT_HAS_RETURN = 1,	 /* its exits are points, too */
	POINT_ALL_REGISTERS = 2, /* operands from OPERAND_OTHERS on are used */
	POINT_QUIET = 4,	 /* counted in the kernel: no records */
	POINT_OFF = 8,		 /* taken away, or above its ceiling */
	POINT_HAS_CALLER = 32,	 /* its return address can be read when it is reached */
	POINT_AT_EXIT = 16,	 /* aggregated at the exit */
};

struct call_point {
	__u32 first; /* of `call_operations` */
	__u32 operations;
	__u32 flags;	/* enum call_point_flag */
	__u32 rate;	/* records a second at most; 0: all */
	__u32 ceiling;	/* hits a second that turn it off; 0: never */
	__u8 pieces[2]; /* of an entry record, of a return record */
	__u8 reserved[6];
	__u32 generation; /* hits of links of another one are not counted */
};

struct call_text {
	__u32 size;
	__u32 reserved;
	__u8 bytes[CALL_TEXT_SIZE];
};

/* Of each point: how often a traced thread reached it, and how many of those have no record. */
struct call_count {
	__u64 hits;
	__u64 lost;	/* no room */
	__u64 filtered; /* by arguments or caller */
	__u64 dropped;	/* above the rate */
};

/* What is counted in the kernel: of a point, by a key and, in a histogram, by the number of bits.
 */
struct call_group {
	__u32 point;
	__u32 slot;
	__u8 key[CALL_KEY_SIZE];
};

struct call_sum {
	__u64 count;
	__u64 total;
};

struct call_window {
	__u64 start_ns;
	__u64 hits;
	__u64 passed; /* the filters */
};

#endif
