#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "questions.hpp"
#include "raw_limits.hpp"
#include "raw_memory.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr std::size_t round_bytes = std::size_t{64} << 20;
constexpr int most_messages = 4096;

/// Messages of one flow in a round; all sides compute the same number.
int messages_of(std::size_t size, int flows) {
  const std::size_t each =
      round_bytes / std::max<std::size_t>(size, 1) / static_cast<std::size_t>(flows);
  return static_cast<int>(std::clamp<std::size_t>(each, 8, most_messages));
}

/// `k` flows of messages, each from one sender to the leader, one at a time: all of them
/// in lanes of one world, or each in a world of its own.
class flows {
 public:
  flows(member& m, mw::rank_t rank, const worlds_options& o)
      : rank_(rank), options_(o), memory_(*std::ranges::max_element(o.sizes)) {
    worlds_.push_back(m.describe("one", rank, o.senders + 1));
    for (int k = 0; k < o.worlds; ++k) {
      if (rank > 0 && sender_of(k) != rank) continue;
      own_.push_back(k);
      worlds_.push_back(m.describe(fmt::format("of/{}", k), rank == 0 ? 0 : 1));
    }
    for (std::size_t i = 1; i < own_.size(); ++i)
      more_memory_.emplace_back(memory_.size());
  }

  [[nodiscard]] std::vector<mw::world>& worlds() noexcept { return worlds_; }
  [[nodiscard]] mw::world& one() noexcept { return worlds_[0]; }

  /// Seconds until all messages of a round were received, or sent.
  mw::task<double> run(std::size_t size, bool in_one) {
    co_await one().barrier();
    const auto begin = now_ns();
    std::vector<mw::task<void>> all;
    for (std::size_t i = 0; i < own_.size(); ++i) {
      const mw::lane on{in_one ? static_cast<std::uint64_t>(own_[i]) : 0};
      const mw::rank_t sender = in_one ? sender_of(own_[i]) : 1;
      auto& memory = i == 0 ? memory_ : more_memory_[i - 1];
      all.push_back(flow(in_one ? one() : worlds_[i + 1], sender, on,
                         std::span(memory).first(size)));
    }
    co_await mw::when_all(std::move(all));
    co_return us_since(begin) / 1e6;
  }

 private:
  [[nodiscard]] mw::rank_t sender_of(int flow) const noexcept {
    return 1 + flow % options_.senders;
  }
  mw::task<void> flow(mw::world& w, mw::rank_t sender, mw::lane on,
                      std::span<char> data) const {
    for (int left = messages_of(data.size(), options_.worlds); left > 0; --left) {
      if (rank_ == 0) {
        co_await w.recv(data, mw::from{sender}, on);
      } else {
        co_await w.send(data, mw::to{0}, on);
      }
    }
  }

  const mw::rank_t rank_;
  const worlds_options& options_;
  std::vector<mw::world> worlds_;
  std::vector<int> own_;
  std::vector<char> memory_;
  std::vector<std::vector<char>> more_memory_;
};

struct rounds_of_size {
  samples one_us, many_us, ratio, raw_us;
};

fields row_of(std::size_t size, std::string_view transport, const worlds_options& o,
              const rounds_of_size& r) {
  const auto gb_s = [&](const samples& us) {
    return us.empty() ? 0 : rounded(static_cast<double>(size) / us.median() / 1e3);
  };
  return {
      {"bench", "worlds"},
      {"transport", transport},
      {"worlds", o.worlds},
      {"senders", o.senders},
      {"size", size},
      {"raw_us", r.raw_us.median()},
      {"one_us", r.one_us.median()},
      {"many_us", r.many_us.median()},
      {"one_gb_s", gb_s(r.one_us)},
      {"many_gb_s", gb_s(r.many_us)},
      {"ratio", r.ratio.median()},
      {"ratio_least", r.ratio.quantile(0)},
      {"ratio_most", r.ratio.largest()},
  };
}

/// One sender's messages without the library: from its memory, or over plain sockets.
class raw_flow {
 public:
  raw_flow(int fd, bool sends, bool shared, std::size_t largest)
      : fd_(fd), sends_(sends) {
    if (shared) memory_ = std::make_unique<raw_memory>(fd, sends, way::read, largest, 1);
  }
  double run(std::span<char> data, int count) {
    if (sends_) {
      return memory_ ? memory_->stream(data, count) : raw_stream(fd_, data, count, how);
    }
    const auto begin = now_ns();
    memory_ ? memory_->drain(data, count) : raw_drain(fd_, data, count, how);
    return us_since(begin) / 1e6;
  }

 private:
  static constexpr waiting how = waiting::blocking;
  const int fd_;
  const bool sends_;
  std::unique_ptr<raw_memory> memory_;
};

mw::task<void> take_part(member& m, const worlds_options& o, mw::rank_t rank,
                         report& out) {
  flows all(m, rank, o);
  co_await form_all(all.worlds());
  // Do not pin earlier: the service thread would inherit it.
  std::optional<pinned_thread> pinned;
  if (o.pin) pinned.emplace(rank % 2);
  if (rank == 0) out.machine(m.engine());
  const std::string transport = all.one().transport();
  const std::size_t largest = *std::ranges::max_element(o.sizes);
  // Beside several senders it would answer another question.
  line plain;
  std::unique_ptr<raw_flow> raw;
  if (o.senders == 1) {
    plain = co_await plain_connection(all.one());
    raw = std::make_unique<raw_flow>(plain.fd(), rank != 0, transport == "shm", largest);
  }
  std::vector<char> data(largest);
  for (const std::size_t size : o.sizes) {
    const int count = messages_of(size, o.worlds) * o.worlds;
    rounds_of_size r;
    // The first round warms up.
    for (int round = 0; round <= o.rounds; ++round) {
      if (rank == 0)
        out.progress(fmt::format("{} bytes, round {} of {}", size, round, o.rounds));
      const double in_one = co_await all.run(size, true);
      const double in_many = co_await all.run(size, false);
      co_await all.one().barrier();
      const double without = raw ? raw->run(std::span(data).first(size), count) : 0;
      if (round == 0) continue;
      r.one_us.add(in_one * 1e6 / count);
      r.many_us.add(in_many * 1e6 / count);
      r.ratio.add(in_one / in_many);
      if (raw) r.raw_us.add(without * 1e6 / count);
    }
    if (rank == 0) out.row(row_of(size, transport, o, r));
  }
  co_await leave_all(all.worlds());
}

}  // namespace

void worlds(const common_options& common, const worlds_options& options) {
  member m(common);
  report out(common.json, common.transport(), common.plot);
  const std::vector<child> others = m.start_others(options.senders + 1);
  const mw::rank_t rank = common.leads() ? 0 : std::stoi(common.role);
  m.runtime().run(take_part(m, options, rank, out));
  let_end(others);
  out.end();
}

}  // namespace mwbench
