#include <fmt/format.h>

#include <stdexcept>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// The peer's next step.
enum class step : int { send, receive, end };

/// Stops an operation in the middle; returns when.
struct interruption {
  std::stop_source source;
  std::int64_t at = 0;

  mw::task<void> after(mw::duration span) {
    co_await mw::sleep_for(span);
    at = now_ns();
    source.request_stop();
  }
};

struct figures {
  samples back_ms;
  int completed = 0;
};

class canceller {
 public:
  canceller(mw::world& w, std::vector<char>& memory) : world_(w), memory_(memory) {}

  /// Half the time of an undisturbed transfer.
  mw::task<mw::duration> half_a_transfer() {
    samples took;
    for (int i = 0; i < 5; ++i) {
      co_await ask(step::send);
      // The peer has had time to offer it, as for a receive that is cancelled.
      co_await world_.arrival(mw::from{1});
      const auto begin = now_ns();
      co_await world_.recv(memory_, mw::from{1});
      took.add(us_since(begin));
    }
    co_return std::chrono::duration_cast<mw::duration>(
        std::chrono::duration<double, std::micro>(took.median() / 2));
  }

  /// The message stays whole: the next receive takes it.
  mw::task<void> cancel_receive(mw::duration after, figures& into) {
    co_await ask(step::send);
    co_await world_.arrival(mw::from{1});
    interruption stop;
    auto receive = [&]() -> mw::task<bool> {
      const auto ended = co_await mw::outcome(
          world_.recv(memory_, mw::from{1}).stop(stop.source.get_token()));
      co_return note(ended ? mw::cause::none : ended.error().cause, stop, into);
    };
    const auto ended = co_await mw::when_all(receive(), stop.after(after));
    if (std::get<0>(ended)) co_await world_.recv(memory_, mw::from{1});
  }

  mw::task<void> cancel_send(mw::duration after, figures& into) {
    co_await ask(step::receive);
    interruption stop;
    auto send = [&]() -> mw::task<bool> {
      const auto ended = co_await mw::outcome(
          world_.send(memory_, mw::to{1}).stop(stop.source.get_token()));
      co_return note(ended ? mw::cause::none : ended.error().cause, stop, into);
    };
    const auto ended = co_await mw::when_all(send(), stop.after(after));
    // The peer waits for this, if it got nothing.
    if (std::get<0>(ended)) co_await world_.send(memory_, mw::to{1});
    co_await world_.barrier();
  }

  mw::task<void> ask(step next) { co_await world_.send_message(next, mw::to{1}); }

 private:
  /// Returns true if it was cancelled.
  bool note(mw::cause why, const interruption& stop, figures& into) {
    if (why == mw::cause::none) {
      ++into.completed;
      return false;
    }
    if (why != mw::cause::cancelled) {
      throw std::runtime_error("a cancelled transfer ended as " +
                               std::string(mw::describe(why)));
    }
    into.back_ms.add(ms_since(stop.at));
    return true;
  }

  mw::world& world_;
  std::vector<char>& memory_;
};

mw::task<void> answer(mw::world& w, std::vector<char>& memory) {
  for (;;) {
    const auto asked = co_await w.recv_message<step>(mw::from{0});
    if (asked.head == step::end) co_return;
    if (asked.head == step::send) {
      co_await w.send(memory, mw::to{0});
      continue;
    }
    for (;;) {
      const auto ended = co_await mw::outcome(w.recv(memory, mw::from{0}));
      if (ended) break;
      if (ended.error().cause != mw::cause::cancelled_by_peer) {
        throw mw::world_error(ended.error());
      }
    }
    co_await w.barrier();
  }
}

void print(report& out, std::string_view side, std::size_t size, const figures& f) {
  out.row({
      {"bench", "cancel"},
      {"side", side},
      {"size", size},
      {"transport", out.transport()},
      {"cancelled", f.back_ms.count()},
      {"completed_first", f.completed},
      {"cancel_ms", f.back_ms.median()},
      {"cancel_p99_ms", f.back_ms.p99()},
  });
}

mw::task<void> take_part(member& m, const common_options& common, const cancel_options& o,
                         report& out) {
  mw::world w = m.describe("cancel", common.leads() ? 0 : 1);
  std::vector<char> memory(o.size, 'x');
  co_await w;
  if (!common.leads()) {
    co_await answer(w, memory);
    co_await w.leave();
    co_return;
  }
  out.machine(m.engine());
  canceller c(w, memory);
  const mw::duration half = co_await c.half_a_transfer();
  figures receives;
  figures sends;
  for (int i = 0; i < o.repeat; ++i) {
    out.progress(fmt::format("{} of {}", i + 1, o.repeat));
    co_await c.cancel_receive(half, receives);
    co_await c.cancel_send(half, sends);
  }
  co_await c.ask(step::end);
  co_await w.leave();
  print(out, "receive", o.size, receives);
  print(out, "send", o.size, sends);
}

}  // namespace

void cancel(const common_options& common, const cancel_options& options) {
  member m(common);
  report out(common.json, common.transport());
  const std::vector<child> others = m.start_others(2);
  m.runtime().run(take_part(m, common, options, out));
}

}  // namespace mwbench
