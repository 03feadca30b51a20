/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * PostgreSQL, protocol 3 (chapter 55 of its documentation): does a call begin with
 * a startup message, or with a message of either direction whose length fits its
 * kind? The port is not asked. Not protocol 2, not TLS without an SSLRequest.
 *
 * Strong: a StartupMessage with its first parameter, SSLRequest, GSSENCRequest,
 * CancelRequest. Weak: all else, as a kind is one letter; the parser follows the
 * chain of messages. At most the first 32 bytes are looked at.
 */
#ifndef TRACEHOUND_L7_POSTGRESQL_H
#define TRACEHOUND_L7_POSTGRESQL_H

#define POSTGRESQL_UDP 17u
#define POSTGRESQL_SEEN 32u

static inline __u32 postgresql_number(const __u8 *at)
{
	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

/* A message without a kind: length, then a version or a code */
static inline __u32 postgresql_match_startup(const __u8 *head, __u32 size)
{
	__u32 length, code;

	if (size > 1 && head[1])
		return MATCH_NO;
	if (size < 8)
		return MATCH_WEAK;
	length = postgresql_number(head);
	code = postgresql_number(head + 4);
	if (code == 80877103u || code == 80877104u)
		return length == 8 ? MATCH_STRONG : MATCH_NO;
	if (code == 80877102u)
		return length >= 16 && length <= 268 ? MATCH_STRONG : MATCH_NO;
	if ((code != 0x30000u && code != 0x30002u) || length < 9 || length > 10000)
		return MATCH_NO;
	if (size < 9)
		return MATCH_WEAK;
	return head[8] >= 'a' && head[8] <= 'z' ? MATCH_STRONG : MATCH_NO;
}

static inline __u32 postgresql_is_kind(__u8 kind)
{
	return (kind >= '1' && kind <= '3') || (kind >= 'A' && kind <= 'I') || kind == 'K' ||
	       kind == 'N' || (kind >= 'P' && kind <= 'T') || (kind >= 'V' && kind <= 'X') ||
	       kind == 'Z' || kind == 'c' || kind == 'd' || kind == 'f' || kind == 'n' ||
	       kind == 'p' || kind == 's' || kind == 't' || kind == 'v';
}

static inline __u32 detect_postgresql(const __u8 *head, __u32 size, __u32 direction,
				      __u32 transport, __u32 port)
{
	__u32 length, next;
	__u8 kind;

	(void)direction;
	(void)port;
	if (!size || transport == POSTGRESQL_UDP)
		return MATCH_NO;
	kind = head[0];
	if (!kind)
		return postgresql_match_startup(head, size);
	if (size < 2 || head[1] || !postgresql_is_kind(kind))
		return MATCH_NO;
	if (size < 5)
		return MATCH_WEAK;
	length = postgresql_number(head + 1);
	if (length < 4)
		return MATCH_NO;
	/* Without a body: ParseComplete, BindComplete, CloseComplete, NoData, PortalSuspended,
	 * EmptyQueryResponse, CopyDone, Terminate; ReadyForQuery has one byte */
	if (((kind >= '1' && kind <= '3') || kind == 'n' || kind == 's' || kind == 'I' ||
	     kind == 'c' || kind == 'X') &&
	    length != 4)
		return MATCH_NO;
	if (kind == 'Z' &&
	    (length != 5 || (size > 5 && head[5] != 'I' && head[5] != 'T' && head[5] != 'E')))
		return MATCH_NO;
	next = length + 1;
	if (next < size && next < POSTGRESQL_SEEN && !postgresql_is_kind(head[next & 31]))
		return MATCH_NO;
	return MATCH_WEAK;
}

#endif
