// The roles of the example: what each instance of prefill, decode and router does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

using namespace std::chrono_literals;

inline constexpr std::size_t tokens_wanted = 24;
inline constexpr auto time_of_token = 1ms;  // of a larger model

/// What goes before a page.
struct page_head {
  std::uint64_t request = 0;
  std::uint32_t layer = 0;
  std::uint32_t tokens = 0;
  int next = 0;  // the first token of the answer, with the last layer
};

inline std::span<float> floats_of(std::vector<row>& rows) {
  return {rows.front().data(), rows.size() * width};
}

// --- prefill --------------------------------------------------------------------------

/// Takes prompts through all layers; each layer's page leaves while the next one is
/// computed.
class prefill_role {
 public:
  explicit prefill_role(mw::role_context& self) : self_(self) {
    answers_.on("prefill", [this](mw::role_call& call) { return prefill(call); });
  }
  mw::task<void> run(mw::scope& s) {
    s.spawn(self_.each("kv", [this](mw::world& w, const mw::instance_id& peer) {
      return serve_pages(w, peer);
    }));
    s.spawn(self_.serve("prompts", answers_));
    self_.ready();
    co_await self_.leaving();
    co_await answers_.drain();
  }

 private:
  struct job {
    std::uint64_t request = 0;
    std::string lost;
    mw::event done;
  };
  /// The way to one instance of decode, while its world is up.
  struct way {
    std::deque<std::shared_ptr<job>> waiting;
    std::map<std::uint64_t, std::shared_ptr<job>> sent;
    mw::event wake;
    ~way() {
      for (const auto& each : waiting) fail(*each);
      for (const auto& [request, each] : sent) fail(*each);
    }
    static void fail(job& one) {
      one.lost = "its decode was lost";
      one.done.set();
    }
  };

  mw::task<std::string> prefill(mw::role_call& call) {
    std::istringstream asked{std::string(call.data())};
    const auto own = std::make_shared<job>();
    std::uint32_t decode = 0;
    asked >> own->request >> decode;
    const auto at = ways_.find(decode);
    if (at == ways_.end()) throw std::runtime_error("that decode is not there");
    at->second->waiting.push_back(own);
    at->second->wake.set();
    co_await own->done;
    if (!own->lost.empty()) throw std::runtime_error(own->lost);
    co_return "";
  }

  mw::task<void> serve_pages(mw::world& w, const mw::instance_id& peer) {
    const auto own = std::make_shared<way>();
    const struct registered {
      std::map<std::uint32_t, std::shared_ptr<way>>& all;
      std::uint32_t index;
      ~registered() { all.erase(index); }
    } while_it_lasts{ways_, peer.index};
    ways_[peer.index] = own;
    co_await mw::when_any(send_pages(w, *own), hear_taken(w, *own));
  }
  mw::task<void> send_pages(mw::world& w, way& to) {
    for (;;) {
      while (to.waiting.empty()) {
        to.wake.reset();
        co_await to.wake;
      }
      const std::shared_ptr<job> next = to.waiting.front();
      to.waiting.pop_front();
      to.sent[next->request] = next;
      co_await send_request(w, next->request);
    }
  }
  mw::task<void> send_request(mw::world& w, std::uint64_t request) {
    std::vector<row> hidden;
    for (const int token : prompt_of(request)) hidden.push_back(model_.embed(token));
    kv_page page;
    co_await compute(0, hidden, page);
    for (std::size_t l = 0; l < layers; ++l) {
      const page_head head{request, static_cast<std::uint32_t>(l),
                           static_cast<std::uint32_t>(hidden.size()),
                           model_.most_likely(hidden.back())};
      kv_page next;
      // Begun in this order: what is sent is on its way before the reactor computes.
      co_await mw::when_all(send_page(w, head, page), compute(l + 1, hidden, next));
      page = std::move(next);
    }
  }
  static mw::task<void> send_page(mw::world& w, const page_head& head, kv_page& page) {
    co_await w.send(mw::object(head), mw::to{1});
    co_await w.send(floats_of(page.keys), mw::to{1});
    co_await w.send(floats_of(page.values), mw::to{1});
  }
  /// Takes all tokens through a layer; behind the last one there is nothing to do.
  mw::task<void> compute(std::size_t layer, std::vector<row>& hidden, kv_page& page) {
    if (layer == layers) co_return;
    for (row& each : hidden) each = model_.step(layer, each, page);
  }
  /// The other side says which requests it has whole.
  static mw::task<void> hear_taken(mw::world& w, way& of) {
    for (;;) {
      std::uint64_t request = 0;
      co_await w.recv(mw::object(request), mw::from{1});
      const auto at = of.sent.find(request);
      if (at == of.sent.end()) continue;
      at->second->done.set();
      of.sent.erase(at);
    }
  }

  mw::role_context& self_;
  const model model_;
  mw::role_methods answers_;
  std::map<std::uint32_t, std::shared_ptr<way>> ways_;
};

// --- decode ---------------------------------------------------------------------------

/// Keeps the pages of requests until they are asked for, and goes on from them.
class decode_role {
 public:
  explicit decode_role(mw::role_context& self) : self_(self) {
    answers_.on("decode", [this](mw::role_call& call) { return decode(call); });
  }
  mw::task<void> run(mw::scope& s) {
    s.spawn(self_.each("kv", [this](mw::world& w) { return take_pages(w); }));
    s.spawn(self_.serve("answers", answers_));
    self_.ready();
    co_await self_.leaving();
    co_await answers_.drain();
  }

 private:
  struct begun {
    kv_cache cache;
    int next = 0;
  };

  mw::task<void> take_pages(mw::world& w) {
    std::map<std::uint64_t, begun> coming;
    for (;;) {
      page_head head;
      co_await w.recv(mw::object(head), mw::from{0});
      if (head.layer >= layers || head.tokens == 0 || head.tokens > 1024) {
        w.fail("no page of this model");
        continue;
      }
      begun& own = coming[head.request];
      kv_page& page = own.cache[head.layer];
      page.keys.resize(head.tokens);
      page.values.resize(head.tokens);
      co_await w.recv(floats_of(page.keys), mw::from{0});
      co_await w.recv(floats_of(page.values), mw::from{0});
      if (head.layer + 1 < layers) continue;
      own.next = head.next;
      whole_[head.request] = std::move(own);
      coming.erase(head.request);
      co_await w.send(mw::object(head.request), mw::to{0});
    }
  }

  mw::task<std::string> decode(mw::role_call& call) {
    const std::uint64_t request = std::stoull(std::string(call.data()));
    const auto found = whole_.find(request);
    if (found == whole_.end()) throw std::runtime_error("the pages are not here");
    // It may be asked again, by a router that has not heard the answer.
    begun own = found->second;
    std::string told;
    for (std::size_t n = 0; n < tokens_wanted; ++n) {
      told += (n > 0 ? " " : "") + std::to_string(own.next);
      own.next = model_.next(own.next, own.cache);
      co_await mw::sleep_for(time_of_token);
    }
    self_.progress(++answered_);
    whole_.erase(request);
    co_return told;
  }

  mw::role_context& self_;
  const model model_;
  mw::role_methods answers_;
  std::map<std::uint64_t, begun> whole_;
  std::uint64_t answered_ = 0;
};

// --- router ---------------------------------------------------------------------------

/// Drives the job: brings each request to a prefill and a decode, again where one of them
/// was lost, and compares the tokens with those of one process.
class router_role {
 public:
  router_role(mw::role_context& self, std::uint64_t requests, std::string result)
      : self_(self), requests_(requests), result_(std::move(result)) {}

  mw::task<void> run(mw::scope& s) {
    s.spawn(self_.ask("prompts", prefills_));
    s.spawn(self_.ask("answers", decodes_));
    self_.ready();
    last_ = std::chrono::steady_clock::now();
    const auto some = [this](mw::scope& inner) -> mw::task<void> {
      for (int n = 0; n < 6; ++n) inner.spawn(answer_in_turn());
      co_return;
    };
    co_await mw::scope::run(some);
    std::ofstream(result_) << nlohmann::json{{"requests", requests_},
                                             {"lost", lost_},
                                             {"wrong", wrong_},
                                             {"tried_again", again_},
                                             {"longest_pause_ms", longest_.count()}};
  }

 private:
  mw::task<void> answer_in_turn() {
    while (next_ < requests_) {
      const std::uint64_t request = next_++;
      std::string told;
      for (int tried = 0; told.empty() && tried < 200; ++tried) {
        if (tried > 0) ++again_;
        told = co_await try_to_answer(request);
        if (told.empty()) co_await mw::sleep_for(20ms);
      }
      note(request, told);
    }
  }
  /// Returns nothing if one that had a part in it was lost.
  mw::task<std::string> try_to_answer(std::uint64_t request) {
    const mw::role_call_options how{.within = 5s, .may_repeat = true};
    const auto decodes = decodes_.members();
    if (decodes.empty()) co_return "";
    const std::uint32_t decode = decodes[turn_++ % decodes.size()].index;
    const std::string name = std::to_string(request);
    try {
      co_await prefills_.any("prefill", name + " " + std::to_string(decode), how);
      std::string told = co_await decodes_.at(decode, "decode", name, how);
      co_return told;
    } catch (const mw::world_error&) {
      co_return "";
    }
  }
  void note(std::uint64_t request, const std::string& told) {
    std::string right;
    for (const int token : model_.generate(prompt_of(request), tokens_wanted))
      right += (right.empty() ? "" : " ") + std::to_string(token);
    if (told.empty()) ++lost_;
    if (!told.empty() && told != right) ++wrong_;
    const auto now = std::chrono::steady_clock::now();
    longest_ = std::max(
        longest_, std::chrono::duration_cast<std::chrono::milliseconds>(now - last_));
    last_ = now;
    self_.progress(++answered_);
  }

  mw::role_context& self_;
  const std::uint64_t requests_;
  const std::string result_;
  const model model_;
  mw::role_group prefills_;
  mw::role_group decodes_;
  std::uint64_t next_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t wrong_ = 0;
  std::uint64_t again_ = 0;
  std::size_t turn_ = 0;
  std::chrono::steady_clock::time_point last_;
  std::chrono::milliseconds longest_{0};
};
