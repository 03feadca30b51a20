// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * No program: makes the types of wire.h part of one object's BTF, which Python and
 * tapes read. A type that only code mentions is not in BTF, hence the pointers.
 */
#include "wire.h"
#include "call_point.h"
#include "l7.h"

#define WIRE_TYPE(type)                                                                            \
	struct type *wire_##type;                                                                  \
	_Static_assert(sizeof(struct type) % 8 == 0, #type " must be a multiple of 8 bytes")
#define WIRE_ENUM(type) enum type wire_##type

WIRE_TYPE(record_header);
WIRE_TYPE(fork_record);
WIRE_TYPE(exec_record);
WIRE_TYPE(exit_record);
WIRE_TYPE(connection_record);
WIRE_TYPE(retransmit_record);
WIRE_TYPE(unix_record);
WIRE_TYPE(nat_record);
WIRE_TYPE(data_record);
WIRE_TYPE(open_record);
WIRE_TYPE(release_record);
WIRE_TYPE(call_entry_record);
WIRE_TYPE(call_return_record);
WIRE_TYPE(call_watch_record);
WIRE_TYPE(call_stack_record);
WIRE_TYPE(call_operation);
WIRE_TYPE(call_point);
WIRE_TYPE(call_text);
WIRE_TYPE(call_count);
WIRE_TYPE(call_group);
WIRE_TYPE(call_sum);
WIRE_TYPE(fact_tick_record);
WIRE_TYPE(fact_clock_record);
WIRE_TYPE(fact_process_record);
WIRE_TYPE(fact_cgroup_record);
WIRE_TYPE(fact_config_record);
WIRE_TYPE(fact_drop_record);
WIRE_TYPE(fact_ring_record);
WIRE_TYPE(fact_loss_record);
WIRE_TYPE(fact_point_record);
WIRE_TYPE(fact_mapping_record);
WIRE_TYPE(fact_module_record);

WIRE_ENUM(ring_id);
WIRE_ENUM(record_kind);
WIRE_ENUM(exec_flag);
WIRE_ENUM(exit_flag);
WIRE_ENUM(connection_event);
WIRE_ENUM(connection_role);
WIRE_ENUM(connection_flag);
WIRE_ENUM(direction);
WIRE_ENUM(capture_class);
WIRE_ENUM(data_flag);
WIRE_ENUM(open_flag);
WIRE_ENUM(mapping_flag);
WIRE_ENUM(piece_flag);
WIRE_ENUM(call_limit);
WIRE_ENUM(call_operand);
WIRE_ENUM(call_operation_kind);
WIRE_ENUM(call_operation_flag);
WIRE_ENUM(call_phase);
WIRE_ENUM(call_point_flag);
WIRE_ENUM(loss_counter);
WIRE_ENUM(watch_known);
WIRE_ENUM(l7_protocol);
WIRE_ENUM(l7_match);
