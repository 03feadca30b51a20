/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "l7.h"

#include "detect.h"

/* Detectors may look at this many bytes before they look at the size: in the kernel the head is a
 * fixed buffer. */
enum { SMALLEST_HEAD = 64 };

uint32_t detect(const uint8_t *head, uint32_t size, uint32_t direction, uint32_t transport,
		uint32_t port)
{
	uint8_t padded[SMALLEST_HEAD] = {0};

	if (size < SMALLEST_HEAD) {
		memcpy(padded, head, size);
		head = padded;
	}
	return detect_l7(head, size, direction, transport, port);
}
