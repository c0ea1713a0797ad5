// A threaded C++ program as users write them: containers, strings, shared pointers, futures, between threads.
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <queue>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi.h"

struct Node {
    std::string name;
    std::vector<std::shared_ptr<Node>> children;
};

static std::shared_ptr<Node> tree(int depth, uint64_t *seed) {
    auto node = std::make_shared<Node>();
    node->name = std::string(next_random(seed) % 100, 'n') + std::to_string(depth);
    if (depth)
        for (int i = 0; i < 3; i++) node->children.push_back(tree(depth - 1, seed));
    return node;
}

static size_t count(const Node &node) {
    return std::accumulate(node.children.begin(), node.children.end(), (size_t)1, [](size_t n, const auto &c) { return n + count(*c); });
}

int main() {
    std::mutex lock;
    std::queue<std::shared_ptr<Node>> queue;
    std::unordered_map<std::string, std::vector<uint64_t>> index;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            uint64_t seed = (uint64_t)t + 1;
            for (int round = 0; round < 60; round++) {
                auto made = tree(6, &seed);
                std::vector<uint64_t> numbers;
                for (int i = 0; i < 20000; i++) numbers.push_back(next_random(&seed));
                std::sort(numbers.begin(), numbers.end());
                std::lock_guard<std::mutex> guard(lock);
                queue.push(std::move(made));
                index["thread " + std::to_string(t) + " round " + std::to_string(round)] = std::move(numbers);
                if (queue.size() > 20) {
                    CHECK(count(*queue.front()) == 1093, "a tree of %zu nodes", count(*queue.front()));
                    queue.pop();
                }
            }
        });
    for (auto &thread : threads) thread.join();
    CHECK(index.size() == 240, "%zu entries", index.size());
    uint64_t sum = 0;
    for (auto &entry : std::map<std::string, std::vector<uint64_t>>(index.begin(), index.end())) {
        CHECK(std::is_sorted(entry.second.begin(), entry.second.end()), "%s", entry.first.c_str());
        sum = sum * 31 + entry.second[12345];
    }
    std::vector<std::future<std::string>> futures;
    for (int i = 0; i < 100; i++) futures.push_back(std::async(std::launch::async, [i] { return std::string((size_t)i * 1000, 'f'); }));
    for (size_t i = 0; i < futures.size(); i++) CHECK(futures[i].get().size() == i * 1000, "future %zu", i);
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
