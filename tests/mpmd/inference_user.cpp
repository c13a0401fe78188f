// Workloads of a role graph, for tests: prefill, decode, and a router which ends a
// request by an error where an example for users would try it again.
//
//     inference_user prefill [FILE]          serves once that file is there
//     inference_user decode
//     inference_user router REQUESTS RESULT  leaves a line of JSON for each request
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/world/runtime.hpp"

namespace {

using namespace std::chrono_literals;

constexpr std::size_t page_size = 4096;
constexpr std::uint64_t tokens_wanted = 16;
constexpr int most_tries = 3;

/// Every process reads the same clock.
double seconds_now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

std::vector<std::uint64_t> page_of(std::uint64_t request) {
  std::vector<std::uint64_t> page(page_size);
  for (std::size_t n = 0; n < page.size(); ++n) page[n] = request * 31 + n;
  return page;
}

std::uint64_t first_token(std::uint64_t request) { return request * 7 % 1009; }

std::uint64_t token_after(std::uint64_t token, std::uint64_t sum) {
  return (token * 31 + sum) % 1009;
}

// --- prefill --------------------------------------------------------------------------

/// Keeps a page for each request until its decode has taken it.
class prefill {
 public:
  prefill(mw::role_context& self, std::string gate)
      : self_(self), gate_(std::move(gate)) {
    answers_.on("prefill", [this](mw::role_call& call) { return answer(call); });
  }
  mw::task<void> run(mw::scope& s) {
    while (!gate_.empty() && !std::filesystem::exists(gate_))
      co_await mw::sleep_for(20ms);
    s.spawn(self_.each("kv", [this](mw::world& w, const mw::instance_id& peer) {
      return give_pages(w, peer.index);
    }));
    s.spawn(self_.serve("prompts", answers_));
    self_.ready();
    co_await self_.leaving();
  }

 private:
  struct reservation {
    std::vector<std::uint64_t> page;
    bool is_taken = false;
    mw::event ended;
  };
  struct way {
    std::map<std::uint64_t, std::shared_ptr<reservation>> waiting;
    std::map<std::uint64_t, std::shared_ptr<reservation>> sent;
    mw::event wake;
  };

  mw::task<std::string> answer(mw::role_call& call) {
    std::istringstream asked{std::string(call.data())};
    std::uint64_t request = 0;
    std::uint32_t decode = 0;
    asked >> request >> decode;
    const auto at = ways_.find(decode);
    if (at == ways_.end()) throw std::runtime_error("that decode is not there");
    const auto own = std::make_shared<reservation>();
    own->page = page_of(request);
    at->second.waiting[request] = own;
    at->second.wake.set();
    co_await own->ended;
    if (!own->is_taken) throw std::runtime_error("that decode was lost");
    co_return std::to_string(first_token(request));
  }
  /// Each epoch of the edge's world has its reservations: with it they end.
  mw::task<void> give_pages(mw::world& w, std::uint32_t decode) {
    way& own = ways_[decode];
    const struct freed_at_end {
      prefill& of;
      std::uint32_t decode;
      ~freed_at_end() { of.free(decode); }
    } whatever_happens{*this, decode};
    co_await mw::when_any(send(w, own), hear_taken(w, own));
  }
  void free(std::uint32_t decode) {
    const auto at = ways_.find(decode);
    const std::size_t held = at->second.waiting.size() + at->second.sent.size();
    for (const auto& [request, each] : at->second.waiting) each->ended.set();
    for (const auto& [request, each] : at->second.sent) each->ended.set();
    ways_.erase(at);
    say("freed " + std::to_string(held) + " of decode." + std::to_string(decode) +
        " at " + std::to_string(seconds_now()));
  }
  static mw::task<void> send(mw::world& w, way& own) {
    for (;;) {
      while (own.waiting.empty()) {
        own.wake.reset();
        co_await own.wake;
      }
      const auto [request, next] = *own.waiting.begin();
      own.waiting.erase(own.waiting.begin());
      own.sent[request] = next;
      co_await w.send(mw::object(request), mw::to{1});
      co_await w.send(std::span(next->page), mw::to{1});
    }
  }
  static mw::task<void> hear_taken(mw::world& w, way& own) {
    for (;;) {
      std::uint64_t request = 0;
      co_await w.recv(mw::object(request), mw::from{1});
      const auto at = own.sent.find(request);
      if (at == own.sent.end()) continue;
      at->second->is_taken = true;
      at->second->ended.set();
      own.sent.erase(at);
    }
  }

  mw::role_context& self_;
  const std::string gate_;
  mw::role_methods answers_;
  std::map<std::uint32_t, way> ways_;
};

// --- decode ---------------------------------------------------------------------------

/// Answers for requests of which it has taken the page, and for no others.
class decode {
 public:
  explicit decode(mw::role_context& self) : self_(self) {
    answers_.on("decode", [this](mw::role_call& call) { return answer(call); });
  }
  mw::task<void> run(mw::scope& s) {
    s.spawn(self_.each("kv", [this](mw::world& w) { return take_pages(w); }));
    s.spawn(self_.serve("answers", answers_));
    self_.ready();
    co_await self_.leaving();
  }

 private:
  mw::task<void> take_pages(mw::world& w) {
    for (;;) {
      std::uint64_t request = 0;
      std::vector<std::uint64_t> page(page_size);
      co_await w.recv(mw::object(request), mw::from{0});
      co_await w.recv(std::span(page), mw::from{0});
      // So that pages are always on their way when one is killed.
      co_await mw::sleep_for(2ms);
      std::uint64_t sum = 0;
      for (const std::uint64_t value : page) sum += value;
      sums_[request] = sum;
      co_await w.send(mw::object(request), mw::to{0});
    }
  }
  mw::task<std::string> answer(mw::role_call& call) {
    say("was asked");
    std::istringstream asked{std::string(call.data())};
    std::uint64_t request = 0, token = 0;
    asked >> request >> token;
    const auto found = sums_.find(request);
    if (found == sums_.end()) throw std::runtime_error("the page is not here");
    const std::uint64_t sum = found->second;
    sums_.erase(found);
    std::string told;
    for (std::uint64_t n = 0; n < tokens_wanted; ++n) {
      token = token_after(token, sum);
      told += std::to_string(token) + " ";
      co_await mw::sleep_for(1ms);
    }
    co_return told;
  }

  mw::role_context& self_;
  mw::role_methods answers_;
  std::map<std::uint64_t, std::uint64_t> sums_;
};

// --- router ---------------------------------------------------------------------------

class router {
 public:
  router(mw::role_context& self, std::uint64_t requests, const std::string& result)
      : self_(self), requests_(requests), result_(result) {}

  mw::task<void> run(mw::scope& s) {
    s.spawn(self_.ask("prompts", prefills_));
    s.spawn(self_.ask("answers", decodes_));
    // What was lost with a prefill is tried again with another one.
    const auto copes = [](mw::instance_id lost) -> mw::task<bool> {
      say("asked about " + lost.text());
      co_return true;
    };
    self_.on_failover(copes);
    self_.ready();
    const auto all = [this](mw::scope& inner) -> mw::task<void> {
      for (int n = 0; n < 8; ++n) inner.spawn(serve_in_turn());
      co_return;
    };
    co_await mw::scope::run(all);
  }

 private:
  using pair = std::pair<std::uint32_t, std::uint32_t>;  // a prefill and a decode
  struct request_log {
    std::uint64_t number = 0;
    std::vector<pair> tried;
    std::string token;
    std::string told;
    std::string ended = "no_capacity";
  };

  mw::task<void> serve_in_turn() {
    while (next_ < requests_) {
      request_log one;
      one.number = next_++;
      if (co_await fill(one)) co_await generate(one);
      write(one);
    }
  }
  /// Before the first token a request may go to another pair, thrice in all.
  mw::task<bool> fill(request_log& one) {
    while (one.tried.size() < most_tries) {
      const std::optional<pair> found = co_await choose(one);
      if (!found) co_return false;
      const auto [from, to] = *found;
      one.tried.push_back(*found);
      one.ended = "prefill_failed";
      try {
        const std::string asked = std::to_string(one.number) + " " + std::to_string(to);
        one.token = co_await prefills_.at(from, "prefill", asked, {.within = 5s});
        co_return true;
      } catch (const mw::world_error&) {
        // It is told by what was tried.
      }
    }
    co_return false;
  }
  /// Of those that are there, one that has not failed this request, in turn. Without any
  /// it waits for a little while.
  mw::task<std::optional<pair>> choose(const request_log& one) {
    for (int looks = 0; looks < 25; ++looks) {
      std::vector<pair> open;
      for (const mw::instance_id& from : prefills_.members())
        for (const mw::instance_id& to : decodes_.members())
          if (std::find(one.tried.begin(), one.tried.end(), pair(from.index, to.index)) ==
              one.tried.end())
            open.emplace_back(from.index, to.index);
      if (!open.empty()) co_return open[turn_++ % open.size()];
      co_await mw::sleep_for(20ms);
    }
    co_return std::nullopt;
  }
  mw::task<void> generate(request_log& one) {
    try {
      const std::string asked = std::to_string(one.number) + " " + one.token;
      const std::uint32_t to = one.tried.back().second;
      one.told = co_await decodes_.at(to, "decode", asked, {.within = 5s});
      one.ended = "ok";
    } catch (const mw::unknown_outcome&) {
      one.ended = "decode_lost";
    } catch (const mw::world_error& e) {
      one.ended = e.failure().detail;
    }
  }
  void write(const request_log& one) {
    nlohmann::json line{{"request", one.number}, {"tried", one.tried},
                        {"first", one.token},    {"told", one.told},
                        {"ended", one.ended},    {"at", seconds_now()}};
    result_ << line.dump() << std::endl;
    self_.progress(++done_);
  }

  mw::role_context& self_;
  const std::uint64_t requests_;
  std::ofstream result_;
  mw::role_group prefills_;
  mw::role_group decodes_;
  std::uint64_t next_ = 0;
  std::uint64_t done_ = 0;
  std::size_t turn_ = 0;
};

template <class Role, class... Arguments>
int play(const Arguments&... arguments) {
  mw::role_context self;
  mw::runtime rt(self.runtime());
  Role role(self, arguments...);
  return self.run(rt, [&](mw::scope& s) { return role.run(s); });
}

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "";
  if (role == "prefill") return play<prefill>(std::string(count > 2 ? words[2] : ""));
  if (role == "decode") return play<decode>();
  if (role == "router" && count == 4)
    return play<router>(std::stoull(words[2]), std::string(words[3]));
  return 2;
}
