// Work for a compiler: recursive templates, tuples, variants, regular expressions, many instantiations.
#include <algorithm>
#include <any>
#include <array>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <unsigned N>
struct Fibonacci {
    static constexpr unsigned long long value = Fibonacci<N - 1>::value + Fibonacci<N - 2>::value;
};
template <>
struct Fibonacci<1> {
    static constexpr unsigned long long value = 1;
};
template <>
struct Fibonacci<0> {
    static constexpr unsigned long long value = 0;
};

template <int... N>
struct List {};
template <typename A, typename B>
struct Join;
template <int... A, int... B>
struct Join<List<A...>, List<B...>> {
    using type = List<A..., B...>;
};
template <int P, typename L>
struct Below;
template <int P>
struct Below<P, List<>> {
    using low = List<>;
    using high = List<>;
};
template <int P, int H, int... T>
struct Below<P, List<H, T...>> {
    using rest = Below<P, List<T...>>;
    using low = std::conditional_t<(H < P), typename Join<List<H>, typename rest::low>::type, typename rest::low>;
    using high = std::conditional_t<(H < P), typename rest::high, typename Join<List<H>, typename rest::high>::type>;
};
template <typename L>
struct Sort;
template <>
struct Sort<List<>> {
    using type = List<>;
};
template <int H, int... T>
struct Sort<List<H, T...>> {
    using split = Below<H, List<T...>>;
    using type = typename Join<typename Sort<typename split::low>::type,
                               typename Join<List<H>, typename Sort<typename split::high>::type>::type>::type;
};
template <int... N>
std::string show(List<N...>) {
    std::string text;
    ((text += std::to_string(N) + ' '), ...);
    return text;
}
template <typename S>
struct FromSequence;
template <int... I>
struct FromSequence<std::integer_sequence<int, I...>> {
    using type = List<(I * 7919 % 101)...>;
};

template <std::size_t... I>
auto many_tuples(std::index_sequence<I...>) {
    return std::make_tuple(std::map<std::array<int, I + 1>, std::variant<int, std::string, std::array<char, I + 3>>>{
        {std::array<int, I + 1>{}, std::string(I, 'x')}}...);
}

int main() {
    std::cout << Fibonacci<90>::value << '\n';
    std::cout << show(Sort<FromSequence<std::make_integer_sequence<int, 90>>::type>::type{}) << '\n';
    auto tuples = many_tuples(std::make_index_sequence<24>{});
    std::cout << std::apply([](const auto &...m) { return (std::get<std::string>(m.begin()->second).size() + ...); }, tuples) << '\n';

    std::string text;
    for (int i = 0; i < 500; i++) text += "key" + std::to_string(i) + "=" + std::to_string(i * i) + "; ";
    std::regex pattern("([a-z]+)([0-9]+)=([0-9]+);");
    long sum = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) sum += std::stol((*it)[3]);
    std::cout << sum << '\n';

    std::vector<std::future<std::unordered_map<std::string, std::vector<std::any>>>> futures;
    for (int t = 0; t < 8; t++)
        futures.push_back(std::async(std::launch::async, [t] {
            std::unordered_map<std::string, std::vector<std::any>> map;
            for (int i = 0; i < 5000; i++) map[std::to_string(i % 701)].push_back(std::make_any<std::string>((size_t)(i % 90 + t), 'a'));
            return map;
        }));
    std::size_t total = 0;
    for (auto &future : futures)
        for (auto &[key, list] : future.get())
            for (auto &value : list) total += key.size() + std::any_cast<std::string &>(value).size();
    std::cout << total << '\n';
#ifdef BROKEN
    std::map<std::vector<int>, std::optional<std::string>> wrong = Sort<List<3, 1, 2>>::type{};
    std::sort(wrong.begin(), wrong.end(), std::function<bool(int)>{});
#endif
    try {
        std::vector<int>().at(5);
    } catch (const std::out_of_range &) {
        return 9;
    }
}
