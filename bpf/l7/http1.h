/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * HTTP/1.0 and HTTP/1.1 (RFC 9112): does a call begin with a request line or a
 * status line? The direction is not trusted, the port is not asked. Not HTTP/0.9,
 * not the preface of HTTP/2 ("PRI * HTTP/2.0"), not SSDP (UDP).
 *
 * Strong: "HTTP/1."; 16 bytes with a method of the standards, a space and what a
 * target begins with. Weak: what may become such; any method of capitals, a space
 * and "/". At most the first 25 bytes are looked at.
 */
#ifndef TRACEHOUND_L7_HTTP1_H
#define TRACEHOUND_L7_HTTP1_H

#define HTTP1_METHOD_MAX 20u
#define HTTP1_STRONG_MIN 16u
#define HTTP1_UDP 17u

#define HTTP1_4(a, b, c, d) ((__u64)(a) << 24 | (__u64)(b) << 16 | (__u64)(c) << 8 | (__u64)(d))
#define HTTP1_8(a, b, c, d, e, f, g, h) (HTTP1_4(a, b, c, d) << 32 | HTTP1_4(e, f, g, h))

/* Do 16 bytes begin with a method of RFC 9110, 5789, 4918, 3253 or 5323, and a space? */
static inline __u32 http1_is_method(const __u8 *head)
{
	__u64 word =
		HTTP1_8(head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]);

	return word >> 32 == HTTP1_4('G', 'E', 'T', ' ') ||
	       word >> 32 == HTTP1_4('P', 'U', 'T', ' ') ||
	       word >> 24 == HTTP1_8(0, 0, 0, 'P', 'O', 'S', 'T', ' ') ||
	       word >> 24 == HTTP1_8(0, 0, 0, 'H', 'E', 'A', 'D', ' ') ||
	       word >> 24 == HTTP1_8(0, 0, 0, 'C', 'O', 'P', 'Y', ' ') ||
	       word >> 24 == HTTP1_8(0, 0, 0, 'M', 'O', 'V', 'E', ' ') ||
	       word >> 24 == HTTP1_8(0, 0, 0, 'L', 'O', 'C', 'K', ' ') ||
	       word >> 16 == HTTP1_8(0, 0, 'P', 'A', 'T', 'C', 'H', ' ') ||
	       word >> 16 == HTTP1_8(0, 0, 'T', 'R', 'A', 'C', 'E', ' ') ||
	       word >> 16 == HTTP1_8(0, 0, 'M', 'K', 'C', 'O', 'L', ' ') ||
	       word >> 8 == HTTP1_8(0, 'D', 'E', 'L', 'E', 'T', 'E', ' ') ||
	       word >> 8 == HTTP1_8(0, 'U', 'N', 'L', 'O', 'C', 'K', ' ') ||
	       word >> 8 == HTTP1_8(0, 'R', 'E', 'P', 'O', 'R', 'T', ' ') ||
	       word >> 8 == HTTP1_8(0, 'S', 'E', 'A', 'R', 'C', 'H', ' ') ||
	       word == HTTP1_8('O', 'P', 'T', 'I', 'O', 'N', 'S', ' ') ||
	       word == HTTP1_8('C', 'O', 'N', 'N', 'E', 'C', 'T', ' ') ||
	       (word == HTTP1_8('P', 'R', 'O', 'P', 'F', 'I', 'N', 'D') && head[8] == ' ') ||
	       (word == HTTP1_8('P', 'R', 'O', 'P', 'P', 'A', 'T', 'C') && head[8] == 'H' &&
		head[9] == ' ');
}

/* "HTTP/1." and a digit, as far as it is here */
static inline __u32 http1_match_status_line(const __u8 *head, __u32 size)
{
	if (head[0] != 'H' || (size > 1 && head[1] != 'T') || (size > 2 && head[2] != 'T') ||
	    (size > 3 && head[3] != 'P') || (size > 4 && head[4] != '/') ||
	    (size > 5 && head[5] != '1') || (size > 6 && head[6] != '.') ||
	    (size > 7 && (head[7] < '0' || head[7] > '9')))
		return MATCH_NO;
	return size > 6 ? MATCH_STRONG : MATCH_WEAK;
}

/* Behind a method and its space: "/path", "http://...", "*" of OPTIONS, "host:port" of CONNECT */
static inline __u32 http1_match_target(const __u8 *head, __u32 size, __u32 at, __u32 is_method)
{
	__u8 first = head[at];

	if (first == '/')
		return is_method ? MATCH_STRONG : MATCH_WEAK;
	if (!is_method)
		return MATCH_NO;
	if (head[0] == 'O' && first == '*')
		return MATCH_STRONG;
	if (head[0] == 'C' && head[2] == 'N')
		return first == '[' || (first >= '0' && first <= '9') ||
				       (first >= 'A' && first <= 'Z') ||
				       (first >= 'a' && first <= 'z')
			       ? MATCH_STRONG
			       : MATCH_NO;
	if ((first | 32) != 'h' || at + 3 >= size || (head[at + 1] | 32) != 't' ||
	    (head[at + 2] | 32) != 't' || (head[at + 3] | 32) != 'p')
		return MATCH_NO;
	return MATCH_STRONG;
}

static inline __u32 detect_http1(const __u8 *head, __u32 size, __u32 direction, __u32 transport,
				 __u32 port)
{
	__u32 at, is_method, match;

	(void)direction;
	(void)port;
	if (!size || transport == HTTP1_UDP)
		return MATCH_NO;
	match = http1_match_status_line(head, size);
	if (match != MATCH_NO)
		return match;
	is_method = size >= HTTP1_STRONG_MIN && http1_is_method(head);
	for (at = 0; at <= HTTP1_METHOD_MAX && at < size; at++)
		if ((head[at] < 'A' || head[at] > 'Z') && head[at] != '-')
			break;
	if (at > HTTP1_METHOD_MAX)
		return MATCH_NO;
	if (at == size)
		return MATCH_WEAK;
	if (at < 3 || head[at] != ' ')
		return MATCH_NO;
	return at + 1 == size ? MATCH_WEAK : http1_match_target(head, size, at + 1, is_method);
}

#endif
