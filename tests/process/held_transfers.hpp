// Transfers of a member with buffers that outlive them: what comes back is filled with
// canaries at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "manyworlds/mw.hpp"

namespace manyworlds::process_tests {

/// Orders, each about one transfer that is known by its TAG:
///
///   take NAME PEER BYTES TAG [MS]   taking TAG ADDRESS, then took TAG N | mixed TAG |
///                                   lost TAG CAUSE. MS "quarter": given up once a
///                                   quarter has come
///   offer NAME PEER BYTES TAG N [MS]
///                                   offering TAG ADDRESS, then gave TAG | lost TAG CAUSE
///   arrival NAME PEER               arrived NAME
///   give_up TAG
///   canaries TAG                    canaries TAG whole | canaries TAG touched
///
/// `say` writes a line; all of it on the reactor.
class held_transfers {
 public:
  explicit held_transfers(void (*say)(const std::string&)) : say_(say) {}

  task<void> take(world& w, std::vector<std::string> order) {
    const from peer(std::stoi(order[2]));
    held& h = hold(order);
    const std::string limit = order.size() > 5 ? order[5] : "60000";
    const bool until_quarter = limit == "quarter";
    const duration within =
        std::chrono::milliseconds(until_quarter ? 60'000 : std::stol(limit));
    say_("taking " + order[4] + " " + address_of(h));
    auto body = [&](scope& s) -> task<void> {
      auto receiving = [&]() -> task<void> {
        const auto got = co_await outcome(
            w.recv(h.memory, peer).within(within).stop(h.giving_up.get_token()));
        h.over = true;
        if (got) {
          const std::uint64_t n = h.memory.front();
          const bool whole = n != 0 && h.memory == content(h.memory.size(), n);
          say_(whole ? "took " + order[4] + " " + std::to_string(n)
                     : "mixed " + order[4]);
        } else {
          come_back(h, order[4], got.error());
        }
      };
      s.spawn(receiving);
      if (!until_quarter) co_return;
      while (!h.over && h.memory[h.memory.size() / 4] == 0) co_await yield();
      h.giving_up.request_stop();
    };
    co_await scope::run(body);
  }

  task<void> offer(world& w, std::vector<std::string> order) {
    const to peer(std::stoi(order[2]));
    held& h = hold(order);
    h.memory = content(h.memory.size(), std::stoul(order[5]));
    const duration within =
        std::chrono::milliseconds(order.size() > 6 ? std::stol(order[6]) : 60'000);
    say_("offering " + order[4] + " " + address_of(h));
    const auto sent = co_await outcome(
        w.send(h.memory, peer).within(within).stop(h.giving_up.get_token()));
    if (sent) {
      say_("gave " + order[4]);
    } else {
      come_back(h, order[4], sent.error());
    }
  }

  task<void> arrival(world& w, std::vector<std::string> order) {
    co_await w.arrival(from(std::stoi(order[2])));
    say_("arrived " + order[1]);
  }

  void give_up(const std::string& tag) { held_.at(tag).giving_up.request_stop(); }

  void look_at_canaries(const std::string& tag) {
    const auto& memory = held_.at(tag).memory;
    const bool whole = std::all_of(memory.begin(), memory.end(),
                                   [](std::uint64_t w) { return w == canary; });
    say_("canaries " + tag + (whole ? " whole" : " touched"));
  }

 private:
  static constexpr std::uint64_t canary = 0x0123456789abcdef;

  struct held {
    std::vector<std::uint64_t> memory;
    std::stop_source giving_up;
    bool over = false;
  };

  /// Message `n`: its number, then words that differ with it and with their place.
  static std::vector<std::uint64_t> content(std::size_t words, std::uint64_t n) {
    std::vector<std::uint64_t> made(words);
    for (std::size_t i = 0; i < words; ++i) made[i] = n * 0x9e3779b97f4a7c15 + i;
    made.front() = n;
    return made;
  }
  static std::string address_of(const held& h) {
    return std::to_string(reinterpret_cast<std::uintptr_t>(h.memory.data()));
  }

  held& hold(const std::vector<std::string>& order) {
    held& h = held_[order[4]];
    h.memory.assign(std::stoul(order[3]) / sizeof(std::uint64_t), 0);
    return h;
  }
  void come_back(held& h, const std::string& tag, const failure& why) {
    std::fill(h.memory.begin(), h.memory.end(), canary);
    say_("lost " + tag + " " + std::string(name_of(why.cause)));
  }

  void (*say_)(const std::string&);
  std::map<std::string, held> held_;
};

}  // namespace manyworlds::process_tests
