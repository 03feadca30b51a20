// SPDX-License-Identifier: Apache-2.0
// Functions whose names a compiler mangles.
#include <string>

#define NOINLINE __attribute__((noinline))

namespace shop {
struct Cart {
	int sum;
	NOINLINE int total(int count, const char *name) const;
	NOINLINE int operator()(int count);
	NOINLINE explicit operator bool() const;
};

int Cart::total(int count, const char *name) const { return sum * count + name[0]; }
int Cart::operator()(int count) { return sum += count; }
Cart::operator bool() const { return sum > 0; }

template <class T> NOINLINE T twice(T value) { return value + value; }

namespace {
NOINLINE int hidden(int value) { return value ^ 3; }
} // namespace
} // namespace shop

extern "C" int run(shop::Cart *cart, int count)
{
	std::string text = shop::twice(std::string("x"));
	return cart->total(count, text.c_str()) + (*cart)(count) + shop::twice(count) + shop::hidden(count) + !*cart;
}
