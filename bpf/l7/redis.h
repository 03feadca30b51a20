/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Redis, RESP2 and RESP3: does a call begin with a command or a reply? The direction
 * is not trusted, the port is not asked. Not inline commands: any line of text may
 * be one, so the reply tells.
 *
 * Strong: an array whose first element is a bulk string of letters,
 * "*3\r\n$3\r\nSE". Weak: what may become such; other replies, but not "+OK" and
 * "-ERR", which POP3 and NATS say too. At most the first 26 bytes are looked at.
 */
#ifndef TRACEHOUND_L7_REDIS_H
#define TRACEHOUND_L7_REDIS_H

#define REDIS_UDP 17u
#define REDIS_COUNT_DIGITS 7u
#define REDIS_SIZE_DIGITS 9u
#define REDIS_SHORT 255u
#define REDIS_AT(head, at) ((head)[(at) & 31u])

/* Where digits and their CRLF end that begin at `at`; 0: they are not there; REDIS_SHORT: what is
 * here may become them */
static inline __u32 redis_find_line_end(const __u8 *head, __u32 size, __u32 at, __u32 max)
{
	__u32 i;

	for (i = 0; i <= REDIS_SIZE_DIGITS; i++, at++) {
		if (at >= size)
			return i <= max ? REDIS_SHORT : 0;
		if (REDIS_AT(head, at) < '0' || REDIS_AT(head, at) > '9')
			break;
	}
	if (!i || i > max || REDIS_AT(head, at) != '\r')
		return 0;
	if (at + 1 >= size)
		return REDIS_SHORT;
	return REDIS_AT(head, at + 1) == '\n' ? at + 2 : 0;
}

static inline __u32 redis_is_letter(__u8 one)
{
	return (one | 32) >= 'a' && (one | 32) <= 'z';
}

static inline __u32 redis_is_type(__u8 one)
{
	return one == '+' || one == '-' || one == ':' || one == '$' || one == '*' || one == '_' ||
	       one == '#' || one == ',' || one == '(' || one == '!' || one == '=' || one == '%' ||
	       one == '~' || one == '>' || one == '|';
}

/* "$3\r\nSE" behind an array's head */
static inline __u32 redis_match_word(const __u8 *head, __u32 size, __u32 at)
{
	at = redis_find_line_end(head, size, at, REDIS_SIZE_DIGITS);
	if (!at)
		return MATCH_NO;
	if (at + 1 >= size)
		return MATCH_WEAK;
	return redis_is_letter(REDIS_AT(head, at)) && redis_is_letter(REDIS_AT(head, at + 1))
		       ? MATCH_STRONG
		       : MATCH_WEAK;
}

static inline __u32 redis_match_aggregate(const __u8 *head, __u32 size)
{
	__u32 at = redis_find_line_end(head, size, 1, REDIS_COUNT_DIGITS);

	if (!at)
		return MATCH_NO;
	if (at >= size)
		return MATCH_WEAK;
	if (head[0] == '*' && REDIS_AT(head, at) == '$')
		return redis_match_word(head, size, at + 1);
	return redis_is_type(REDIS_AT(head, at)) ? MATCH_WEAK : MATCH_NO;
}

/* A line that is no number: "+PONG", "+QUEUED", "-NOAUTH ...", "_", "#t" */
static inline __u32 redis_match_text(const __u8 *head, __u32 size)
{
	__u32 i;

	if (size < 3)
		return MATCH_NO;
	if (head[0] == '_')
		return head[1] == '\r' && head[2] == '\n' ? MATCH_WEAK : MATCH_NO;
	if (head[0] == '#')
		return (head[1] == 't' || head[1] == 'f') && head[2] == '\r' ? MATCH_WEAK
									     : MATCH_NO;
	if (size < 7)
		return MATCH_NO;
	if (head[0] == '+')
		return (head[1] == 'P' && head[2] == 'O' && head[3] == 'N' && head[4] == 'G' &&
			head[5] == '\r') ||
				       (head[1] == 'Q' && head[2] == 'U' && head[3] == 'E' &&
					head[4] == 'U' && head[5] == 'E' && head[6] == 'D')
			       ? MATCH_WEAK
			       : MATCH_NO;
	if (head[0] != '-')
		return MATCH_NO;
	for (i = 1; i < 5; i++)
		if (head[i] < 'A' || head[i] > 'Z')
			return MATCH_NO;
	return MATCH_WEAK;
}

static inline __u32 detect_redis(const __u8 *head, __u32 size, __u32 direction, __u32 transport,
				 __u32 port)
{
	__u32 at;

	(void)direction;
	(void)port;
	if (!size || transport == REDIS_UDP)
		return MATCH_NO;
	switch (head[0]) {
	case '*':
	case '%':
	case '~':
	case '>':
		return redis_match_aggregate(head, size);
	case '$':
	case ':':
		at = redis_find_line_end(head, size, 1, REDIS_SIZE_DIGITS);
		return at ? MATCH_WEAK : MATCH_NO;
	default:
		return redis_match_text(head, size);
	}
}

#endif
