/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* --signal: what a process gets when one of its threads has reached a point. */
#ifndef TRACEHOUND_CALL_SIGNAL_H
#define TRACEHOUND_CALL_SIGNAL_H

#include "compat.h"

const volatile __u32 config_call_signal = 0;

static __always_inline void signal_target(void)
{
	if (config_call_signal)
		bpf_send_signal(config_call_signal);
}

#endif
