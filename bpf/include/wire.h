/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The records that cross from the kernel, and the facts that user space adds to
 * them: their only definition. Python reads names, types and offsets from the
 * BTF of the compiled objects.
 *
 * RECORD_X <-> struct x_record <-> batch.records["x"]: tied by name. The high
 * byte of a kind is the ring it travels in. Every record starts with the header,
 * is a multiple of 8 bytes, and has no implicit holes; bytes after the fixed part
 * are its tail, in the order of the *_size members that describe it.
 */
#ifndef TRACEHOUND_WIRE_H
#define TRACEHOUND_WIRE_H

#include <linux/types.h>

enum ring_id {
	RING_LIFECYCLE = 1,
	RING_DATA = 2,
	RING_FACT = 3,	/* filled by user space */
	RING_STACK = 4, /* perf buffers: one for each CPU, read by user space */
};

enum record_kind {
	RECORD_FORK = RING_LIFECYCLE << 8 | 1,
	RECORD_EXEC = RING_LIFECYCLE << 8 | 2,
	RECORD_EXIT = RING_LIFECYCLE << 8 | 3,
	RECORD_CONNECTION = RING_LIFECYCLE << 8 | 4,
	RECORD_RETRANSMIT = RING_LIFECYCLE << 8 | 5,
	RECORD_NAT = RING_LIFECYCLE << 8 | 6,
	RECORD_UNIX = RING_LIFECYCLE << 8 | 16,
	RECORD_DATA = RING_DATA << 8 | 1,
	RECORD_OPEN = RING_DATA << 8 | 2,
	RECORD_RELEASE = RING_DATA << 8 | 3,
	RECORD_CALL_ENTRY = RING_DATA << 8 | 4,
	RECORD_CALL_RETURN = RING_DATA << 8 | 5,
	RECORD_CALL_WATCH = RING_DATA << 8 | 32,
	RECORD_FACT_TICK = RING_FACT << 8 | 1,
	RECORD_FACT_CLOCK = RING_FACT << 8 | 2,
	RECORD_FACT_PROCESS = RING_FACT << 8 | 3,
	RECORD_FACT_CGROUP = RING_FACT << 8 | 4,
	RECORD_FACT_CONFIG = RING_FACT << 8 | 5,
	RECORD_FACT_DROP = RING_FACT << 8 | 6,
	RECORD_FACT_RING = RING_FACT << 8 | 7,
	RECORD_FACT_LOSS = RING_FACT << 8 | 8,
	RECORD_FACT_POINT = RING_FACT << 8 | 9,
	RECORD_FACT_MAPPING = RING_FACT << 8 | 16,
	RECORD_FACT_MODULE = RING_FACT << 8 | 17,
	RECORD_CALL_STACK = RING_STACK << 8 | 1,
};

/* ring_seq of a record that came by an iterator and not through a ring: it cannot be lost. */
#define RING_SEQ_NONE (~0ULL)

struct record_header {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid;  /* thread group in the initial pid namespace, the owner's if the kernel acted */
	__u32 tid;  /* 0 where the kernel acted for the owner */
	__u32 size; /* of the whole record, tail included, before rounding up to 8 */
	__u16 kind; /* enum record_kind */
	__u16 cpu;
	__u64 ring_seq; /* reservations of this (ring, cpu), failed ones too; from 0; or
			   RING_SEQ_NONE */
};

/* ---- processes ---------------------------------------------------------- */

struct fork_record {
	struct record_header header; /* pid: the parent */
	__u64 start_ns;		     /* of the child: with its pid, its identity */
	__u64 cgroup_id;
	__u32 child_pid;
	__u32 child_ns_pid; /* in its own pid namespace */
	__u32 uid;
	__u32 reserved;
	char comm[16];
};

enum exec_flag {
	EXEC_EXE_TRUNCATED = 1,
	EXEC_ARGV_TRUNCATED = 2,
	EXEC_PREEXISTING = 4, /* no exec: the process was there before it was traced */
};

struct exec_record {
	struct record_header header;
	__u64 start_ns;
	__u64 cgroup_id;
	__u32 old_pid; /* the thread that called execve, if it was not the leader */
	__u32 ppid;
	__u32 ns_pid;
	__u32 uid;
	__u32 flags; /* enum exec_flag */
	__u32 exe_size;
	__u32 argv_size; /* arguments, each with its NUL */
	__u32 reserved;
	char comm[16];
	__u8 data[]; /* exe, argv */
};

enum exit_flag {
	EXIT_CORE_DUMPED = 1,
	EXIT_OOM_KILL = 2,
};

struct exit_record {
	struct record_header header;
	__u64 start_ns;
	__u32 exit_code;
	__u32 signal;
	__u32 flags; /* enum exit_flag */
	__u32 reserved;
	char comm[16];
};

/* ---- connections -------------------------------------------------------- */

enum connection_event {
	CONNECTION_OPEN = 1,   /* client: established */
	CONNECTION_ACCEPT = 2, /* server: established */
	CONNECTION_ERROR = 3,  /* client: never established */
	CONNECTION_CLOSE = 4,  /* destroyed; counters are final */
	CONNECTION_LISTEN = 5,
	CONNECTION_UNLISTEN = 6,
	CONNECTION_SNAPSHOT = 7,
};

enum connection_role {
	ROLE_UNKNOWN = 0,
	ROLE_CLIENT = 1,
	ROLE_SERVER = 2,
};

enum connection_flag {
	CONNECTION_PREEXISTING = 1, /* first seen after it was established */
	CONNECTION_SHARED = 2,	    /* several threads used one direction */
	CONNECTION_RESET = 4,	    /* ended by a reset, either side's */
	CONNECTION_NEVER_ACCEPTED = 8,
	CONNECTION_CAPTURED = 16, /* from packets, not from an end: local is the client, if there
				     is a base_sent; nothing is known of processes and calls */
};

struct connection_record {
	struct record_header header;
	__u64 cookie;
	__u64 parent_cookie; /* of the listener, or 0 */
	__u64 started_ns;    /* client: SYN sent */
	__u64 established_ns;
	__u64 ended_ns; /* the owner's close, FIN or reset; 0 while open */
	__u64 first_read_ns;
	__u64 first_write_ns;
	__u64 last_read_start_ns;
	__u64 bytes_sent;     /* payload queued by the program: the stream's final position */
	__u64 bytes_received; /* payload that arrived */
	__u64 bytes_read;     /* payload read by the program: the stream's final position */
	__u64 send_calls;
	__u64 receive_calls;
	__u32 base_sent; /* TCP sequence number of the first payload byte sent */
	__u32 base_received;
	__u32 attempt; /* connects of this socket; with the cookie, the connection */
	__u32 network_namespace;
	__u32 retransmits;
	__u32 srtt_us;
	__s32 error; /* errno, or 0 */
	__u32 backlog;
	__u8 local_address[16]; /* IPv4: the first 4 bytes */
	__u8 remote_address[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u8 transport; /* IPPROTO_*; of family unix: TCP for streams, UDP for others */
	__u8 event;	/* enum connection_event */
	__u8 role;	/* enum connection_role */
	__u8 state;	/* TCP state when written */
	__u16 flags;	/* enum connection_flag */
	__u32 slot;	/* fd + 1 of a socket that was there before; 0: not known */
};

/* What only unix sockets have; just before the record of the connection's beginning. */
struct unix_record {
	struct record_header header;
	__u64 cookie;
	__u64 peer_cookie; /* 0: the peer was not used yet, or is not traced */
	__u32 peer_pid;	   /* who connected; of a client: who listened */
	__u16 local_size;
	__u16 remote_size;
	char local_path[108]; /* abstract ones begin with NUL */
	char remote_path[108];
};

struct retransmit_record {
	struct record_header header;
	__u64 cookie;
	__u32 sequence;
	__u32 size_bytes;
	__u32 state;
	__u32 attempt;
};

/* What the answers to a SYN's connection come from and go to: both ends as the server has them. */
struct nat_record {
	struct record_header header; /* pid and tid: 0, packets are nobody's */
	__u64 cookie;
	__u8 original_local_address[16]; /* IPv4: the first 4 bytes */
	__u8 original_remote_address[16];
	__u8 actual_local_address[16];
	__u8 actual_remote_address[16];
	__u16 original_local_port;
	__u16 original_remote_port;
	__u16 actual_local_port;
	__u16 actual_remote_port;
	__u16 family; /* of all four */
	__u16 reserved[3];
};

/* ---- data --------------------------------------------------------------- */

enum direction {
	DIRECTION_SEND = 0,
	DIRECTION_RECEIVE = 1,
};

enum capture_class {
	CAPTURE_UNKNOWN = 0,   /* 4 KiB of each call until a verdict */
	CAPTURE_FRAMED = 1,    /* 64 KiB head and 256 B tail of each call */
	CAPTURE_HEAD_TAIL = 2, /* 4 KiB head and 256 B tail of each call */
	CAPTURE_COUNT = 3,     /* position and size only */
	CAPTURE_OFF = 4,       /* no records; counted in the socket */
};

enum data_flag {
	DATA_PEEK = 1,	       /* MSG_PEEK: the position did not move */
	DATA_OPAQUE = 2,       /* the payload cannot be read (sendfile, splice, io_uring) */
	DATA_DISPUTED = 4,     /* another thread moved the position: it may be wrong */
	DATA_FAULT = 8,	       /* a page was absent: captured bytes are fewer */
	DATA_IOV_CUT = 16,     /* more than 128 iovecs */
	DATA_FIRST = 32,       /* first record of its call */
	DATA_PREEXISTING = 64, /* the socket was there before it was traced */
	DATA_LIMITED = 128,    /* captured less than the class asks for: overload */
	DATA_UNWATCHED = 256,  /* no hook saw the bytes before it: `requests` was off */
	DATA_NAMES = 512,      /* of a UDP socket without a peer that has asked port 53 */
};

struct data_record {
	struct record_header header;
	__u64 cookie;
	__u64 position_end; /* stream position after the whole call */
	__u32 call_size;    /* bytes that the whole call moved */
	__u32 offset;	    /* of this piece in the call */
	__u32 head_size;    /* data[0..head_size) starts at offset */
	__u32 tail_size;    /* then the last tail_size bytes of the call */
	__s32 fd;
	__u32 sequence; /* TCP sequence number of the call's first byte */
	__u16 syscall;
	__u16 flags;   /* enum data_flag */
	__u16 verdict; /* enum l7_protocol, or 0 */
	__u8 strength; /* enum l7_match */
	__u8 family;
	__u8 transport;	    /* as in connection_record */
	__u8 direction;	    /* enum direction */
	__u8 capture_class; /* enum capture_class */
	__u8 role;	    /* enum connection_role */
	__u16 local_port;
	__u16 remote_port;
	__u8 data[];
};

/* ---- files -------------------------------------------------------------- */

enum open_flag {
	OPEN_PATH_TRUNCATED = 1, /* the path had more than 4096 bytes */
	OPEN_PATH_FAULT = 2,	 /* the path could not be read */
	OPEN_RESOLVED = 4, /* place is what was opened, else the directory that path begins at */
	OPEN_PLACE_UNKNOWN = 8, /* no such descriptor, or too many parts */
};

/* An open that ended. */
struct open_record {
	struct record_header header;
	__u64 duration_ns; /* 0: its begin was not seen */
	__u32 open_flags;  /* O_* of asm-generic */
	__u32 mode;
	__s32 result; /* descriptor, or -errno */
	__u32 flags;  /* enum open_flag */
	__u32 place_size;
	__u32 path_size;
	__u8 data[]; /* place, path */
};

/* Slots of the descriptor table are about to be emptied or given something else. */
struct release_record {
	struct record_header header;
	__u32 first;
	__u32 last;
};

/* ---- calls --------------------------------------------------------------- */

/* What a piece's size is or'ed with. */
enum piece_flag {
	PIECE_CUT = 1u << 29,	/* there is more of it */
	PIECE_NULL = 1u << 30,	/* of address 0 */
	PIECE_FAULT = 1u << 31, /* could not be read */
};

/* A point was reached: its first instruction is about to run. */
struct call_entry_record {
	struct record_header header;
	__u64 call;	/* its id, never used twice in a trace */
	__u64 replaced; /* a call that began at the same stack address and has ended unseen */
	__u64 ip;	/* as the program has it in memory */
	__u64 sp;
	__u64 bp;
	__u64 caller_ip;    /* return address; only of points at which a function begins */
	__u64 arguments[6]; /* registers that integer arguments are passed in */
	__u32 point;
	__u32 pieces;
	__u8 data[]; /* of each piece a __u32: size | enum piece_flag; then the pieces */
};

/* The call `call` is about to return. */
struct call_return_record {
	struct record_header header;
	__u64 call;
	__u64 entry_ns;
	__u64 value;
	__u32 point;
	__u32 pieces;
	__u8 data[]; /* as of an entry */
};

enum watch_known {
	WATCH_OLD_VALUE = 1,
	WATCH_NEW_VALUE = 2,
};

/* A watched address was read, written or run. */
struct call_watch_record {
	struct record_header header;
	__u64 call;
	__u64 ip; /* behind the instruction that read or wrote; the one that is about to run */
	__u64 sp;
	__u64 bp;
	__u64 address;
	__u64 old_value; /* before the access, as many bytes as are watched */
	__u64 new_value;
	__u32 point;
	__u32 size_bytes;
	__u32 known; /* enum watch_known */
	__u32 reserved;
};

/* ---- stacks -------------------------------------------------------------- */

/* Registers and a copy of the stack at a hit of a point: what an unwinder walks. */
struct call_stack_record {
	struct record_header header;
	__u64 call;	      /* of calls, same hit */
	__u64 abi_registers;  /* mask of perf's sample_regs_user */
	__u32 abi;	      /* 0 none, 1 32 bit, 2 64 bit */
	__u32 register_count; /* as many as the mask has bits, or 0 */
	__u32 chain_count;    /* callchain u64s, with context marks */
	__u32 slot_count;     /* uretprobe slots: pairs (stack address, original return address) */
	__u32 stack_size;     /* bytes really readable */
	__u32 stack_asked;    /* so many were wanted: equal sizes may be cut */
	__u8 data[]; /* registers, chain, slots (u64 each), stack bytes from the stack pointer */
};

/* ---- facts: what user space read from the machine ------------------------ */

/* The rings were drained completely of all that was submitted before time_ns. */
struct fact_tick_record {
	struct record_header header;
};

struct fact_clock_record {
	struct record_header header;
	__u64 monotonic_ns;
	__u64 realtime_ns;
};

struct fact_process_record {
	struct record_header header;
	__u64 start_ns;
	__u32 ppid;
	__u32 ns_pid;
	__u32 uid;
	__u32 exe_size;
	__u32 argv_size; /* arguments, each with its NUL */
	__u32 cgroup_size;
	__u32 service_size; /* OTEL_SERVICE_NAME */
	__u32 reserved;
	char comm[16];
	__u8 data[]; /* exe, argv, cgroup, service */
};

struct fact_cgroup_record {
	struct record_header header;
	__u64 id;
	__u32 path_size;
	__u32 reserved;
	__u8 data[]; /* path */
};

struct fact_config_record {
	struct record_header header;
	__u32 text_size;
	__u32 reserved;
	__u8 data[]; /* JSON */
};

/* What a point of call records is, for their rows. */
struct fact_point_record {
	struct record_header header;
	__u32 point;
	__u32 text_size;
	__u8 data[]; /* JSON */
};

enum mapping_flag {
	MAPPING_LISTED = 1,	/* read from /proc/PID/maps; else it was seen when it was made */
	MAPPING_FIRST = 2,	/* of such a list: what was known of the process before is gone */
	MAPPING_GENERATION = 4, /* inode_generation is known */
};

/* Memory of a process (header.pid), from time_ns on: the range has this and nothing else. */
struct fact_mapping_record {
	struct record_header header;
	__u64 start_ns; /* of the process; 0: of the one that has the pid at time_ns */
	__u64 start;
	__u64 end;
	__u64 offset; /* in the file */
	__u64 inode;  /* 0: no file */
	__u64 inode_generation;
	__u32 device_major;
	__u32 device_minor;
	__u32 protection; /* PROT_* */
	__u32 flags;	  /* enum mapping_flag */
	__u32 build_id_size;
	__u32 path_size;
	__u8 build_id[24];
	__u8 data[]; /* path, as the kernel has it: [vdso], //anon and " (deleted)" too */
};

/* What stacks need of a file, or of the code that a process made (header.pid), in several parts. */
struct fact_module_record {
	struct record_header header;
	__u64 start_ns; /* of the process, of code that it made */
	__u64 inode;
	__u32 device_major;
	__u32 device_minor;
	__u32 build_id_size;
	__u32 path_size;
	__u32 part; /* from 0 */
	__u32 parts;
	__u32 content_size; /* of this part */
	__u32 inode_generation;
	__u8 build_id[24];
	__u8 data[]; /* path, content */
};

/* Records that the drain read and threw away. header.cpu: whose they were. */
struct fact_drop_record {
	struct record_header header;
	__u64 first_seq;
	__u64 last_seq;
	__u64 count;
	__u64 first_ns;
	__u64 last_ns;
	__u32 ring;    /* enum ring_id */
	__u32 counter; /* enum loss_counter */
};

/* The next ring_seq of (ring, header.cpu) at time_ns. */
struct fact_ring_record {
	struct record_header header;
	__u64 next_seq;
	__u32 ring; /* enum ring_id */
	__u32 reserved;
};

enum loss_counter {
	LOSS_RING_FULL = 0,	  /* no room in a ring */
	LOSS_BACKLOG_FULL = 1,	  /* decode lagged, the drain threw records away */
	LOSS_FAULT = 2,		  /* a page of the payload was absent */
	LOSS_IOV_CUT = 3,	  /* bytes beyond the 128th iovec */
	LOSS_STORAGE_FULL = 4,	  /* no memory for a socket's state */
	LOSS_TABLE_FULL = 5,	  /* a map had no room */
	LOSS_OPAQUE_BYTES = 6,	  /* bytes of calls whose payload cannot be read */
	LOSS_CAPTURE_LIMITED = 7, /* overload: less was captured */
	LOSS_COUNTERS = 8,

	/* Of captures, not of the kernel side. */
	LOSS_PACKET_DROPPED = 9,   /* by what captured, as it says */
	LOSS_PACKET_DAMAGED = 10,  /* headers that are cut off or cannot be */
	LOSS_PACKET_UNREAD = 11,   /* of a link type that is not read */
	LOSS_FRAGMENT_LOST = 12,   /* IP datagrams that never were complete */
	LOSS_CONNECTION_SHED = 13, /* too many at once */
};

/* A counter of the kernel side that rose between first_ns and last_ns. */
struct fact_loss_record {
	struct record_header header;
	__u64 count;
	__u64 first_ns;
	__u64 last_ns;
	__u32 counter; /* enum loss_counter */
	__u32 reserved;
};

#endif
