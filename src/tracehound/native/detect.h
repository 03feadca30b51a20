/* Protocol detection in user space, by the same C as in the kernel: for pieces too short to be
 * judged there. */

/* Returns enum l7_protocol << 8 | enum l7_match for the first `size` bytes of one direction. */
uint32_t detect(const uint8_t *head, uint32_t size, uint32_t direction, uint32_t transport,
		uint32_t port);
