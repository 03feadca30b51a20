// SPDX-License-Identifier: Apache-2.0
// Calls functions whose names a compiler mangles: add(int) 10 times, add(char const*) 5 times, twice<long> 3 times.
#define NOINLINE __attribute__((noinline))

namespace shop {
struct Cart {
	long sum;
	NOINLINE int add(int count);
	NOINLINE int add(const char *text);
};

int Cart::add(int count) { return static_cast<int>(sum += count); }
int Cart::add(const char *text) { return static_cast<int>(sum += text[0]); }

template <class T> NOINLINE T twice(T value) { return value + value; }
template long twice(long);
} // namespace shop

int main(int argc, char **)
{
	shop::Cart cart = {argc};
	for (int i = 0; i < 10; i++)
		cart.add(i);
	for (int i = 0; i < 5; i++)
		cart.add("ab" + i % 2);
	for (long i = 0; i < 3; i++)
		cart.sum += shop::twice(i * argc);
	return cart.sum == 0;
}
