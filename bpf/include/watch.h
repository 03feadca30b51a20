/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is watched, and what was there before: maps of watch.bpf.c. */
#ifndef TRACEHOUND_WATCH_H
#define TRACEHOUND_WATCH_H

#include "compat.h"

enum {
	WATCHES_MAX = 64, /* of all threads: a CPU has four at once */
	WATCH_VALUES_MAX = 4096,
	WATCH_SECOND_NS = 1000000000,
};

const volatile __u32 config_watch_rate = 10000;

/* Context of a program of perf events, by the user ABI: no CO-RE. */
#if defined(__TARGET_ARCH_x86)
struct watch_context {
	unsigned long registers[21]; /* in the order of struct pt_regs */
	__u64 sample_period;
	__u64 address;
};
#define WATCH_IP(context) ((context)->registers[16])
#define WATCH_SP(context) ((context)->registers[19])
#define WATCH_BP(context) ((context)->registers[4])
#elif defined(__TARGET_ARCH_arm64)
struct watch_context {
	unsigned long registers[34]; /* x0 to x30, sp, pc, pstate */
	__u64 sample_period;
	__u64 address;
};
#define WATCH_IP(context) ((context)->registers[32])
#define WATCH_SP(context) ((context)->registers[31])
#define WATCH_BP(context) ((context)->registers[29])
#endif

struct watch_point {
	__u32 slot;	  /* of the maps below */
	__u32 point;	  /* number of its rows */
	__u32 size_bytes; /* 0: what is run has no value */
	__u32 only_reads; /* the CPU cannot watch those alone: what changes the value is left out */
	__u32 is_kernel;
	__u32 reserved;
};

/* By address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WATCHES_MAX);
	__type(key, __u64);
	__type(value, struct watch_point);
} watch_points SEC(".maps");

struct watch_place {
	__u64 address;
	__u32 tgid;
	__u32 reserved;
};

/* The value as last seen. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WATCH_VALUES_MAX);
	__type(key, struct watch_place);
	__type(value, __u64);
} watch_values SEC(".maps");

struct watch_state {
	__u64 hits;
	__u64 lost;	  /* of them without room for a row */
	__u64 suppressed; /* and those beyond the rate */
	__u64 second_ns;
	__u64 in_second;
	__u64 is_over; /* user space is to end it */
};

/* By slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WATCHES_MAX);
	__type(key, __u32);
	__type(value, struct watch_state);
} watch_states SEC(".maps");

#endif
