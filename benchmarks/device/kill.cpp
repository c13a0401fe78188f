#include <signal.h>

#include <future>
#include <optional>

#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

/// Before each fault: for the sum to be in its kernel, and for the world beside to show
/// what it does anyway.
constexpr auto quiet = 200ms;

struct fault_figures {
  samples suspect_ms;
  samples error_ms;
  samples back_ms;
  samples freed_ms;
  samples quiet_gap_us;
  samples fault_gap_us;
  /// How often the application stood in cudaFree at the fault.
  int stood = 0;
};

/// A thread of the application that frees memory of a device. CUDA returns from that when
/// the device is idle, and a lock of the driver's is held until then. The memory is there
/// before: to allocate may have to wait as well.
class freeing_thread {
 public:
  freeing_thread(const by_hand& cuda, int device) : cuda_(cuda), device_(device) {
    std::async(std::launch::async, [this] {
      cuda_.check(cuda_.set_device(device_));
      cuda_.check(cuda_.allocate(&memory_, 4096));
    }).get();
  }
  freeing_thread(const freeing_thread&) = delete;
  freeing_thread& operator=(const freeing_thread&) = delete;

  void begin() {
    freed_ = std::async(std::launch::async, [this] {
      cuda_.check(cuda_.set_device(device_));
      cuda_.check(cuda_.free(memory_));
      return now_ns();
    });
  }
  [[nodiscard]] bool has_ended() const {
    return freed_.wait_for(0s) == std::future_status::ready;
  }
  /// Gives when that was.
  mw::task<std::int64_t> ended() {
    while (!has_ended()) co_await mw::sleep_for(1ms);
    co_return freed_.get();
  }

 private:
  const by_hand& cuda_;
  const int device_;
  void* memory_ = nullptr;
  std::future<std::int64_t> freed_;
};

/// A world of one rank on the same device that has nothing to do with the fault.
class bystander {
 public:
  explicit bystander(gpu_member& g) : member_(g), world_(g.describe("bystander", 1)) {}

  mw::task<void> ready() {
    co_await world_;
    co_await world_.device_ready();
  }
  /// Until cancelled.
  mw::task<void> work() {
    mw::device_buffer<float> from(member_.pool(), 1024, world_.stream());
    mw::device_buffer<float> into(member_.pool(), 1024, world_.stream());
    for (;;) {
      const auto begin = now_ns();
      co_await world_.all_reduce(from, into, mw::sum);
      seen_.add(us_since(begin));
    }
  }
  /// What was seen since the last call.
  [[nodiscard]] samples take() { return std::exchange(seen_, {}); }

 private:
  gpu_member& member_;
  mw::world world_;
  samples seen_;
};

std::string name_of(int number) { return fmt::format("kill/{}", number); }

class faults {
 public:
  faults(gpu_member& g, const kill_options& o, bystander& beside)
      : member_(g), options_(o), beside_(beside) {}

  mw::task<void> run() {
    for (int i = 0; i < options_.repeat; ++i) co_await once(i);
  }
  [[nodiscard]] const fault_figures& figures() const noexcept { return figures_; }

 private:
  bool kills() const noexcept { return options_.fault == "kill"; }

  mw::task<void> once(int number) {
    const child victim = member_.start(1, fmt::format("victim{}", number));
    if (options_.frees) application_.emplace(member_.cuda(), member_.device());
    world_ = member_.describe(name_of(number), 2);
    co_await world_;
    co_await world_.device_ready();
    co_await mw::when_all(wait_for_buffers(), wait_for_break(), strike(victim.pid()));
    co_await mw::sleep_for(quiet);
    figures_.fault_gap_us.add_all(beside_.take());
    co_await world_.drained();
    if (application_)
      figures_.freed_ms.add(ms_from_fault(co_await application_->ended()));
  }

  /// In a sum that the victim never enters: the device waits in NCCL's kernel.
  mw::task<void> wait_for_buffers() {
    mw::device_buffer<float> x(member_.pool(), 1024, world_.stream());
    const auto ended = co_await mw::outcome(world_.all_reduce(x, mw::sum).unmatched());
    figures_.back_ms.add(since_fault());
    const auto expected = kills() ? mw::cause::peer_died : mw::cause::silent_peer;
    if (ended || ended.error().cause != expected) {
      throw std::runtime_error("the waiter was told: " +
                               (ended ? "a sum of one" : ended.error().text()));
    }
  }
  mw::task<void> wait_for_break() {
    const mw::failure why = co_await world_.broken();
    figures_.error_ms.add(since_fault());
  }
  mw::task<void> strike(pid_t victim) {
    co_await mw::sleep_for(quiet);
    (void)beside_.take();
    co_await mw::sleep_for(quiet);
    figures_.quiet_gap_us.add_all(beside_.take());
    if (application_) {
      application_->begin();
      co_await mw::sleep_for(quiet);
      figures_.stood += application_->has_ended() ? 0 : 1;
    }
    struck_ = now_ns();
    ::kill(victim, kills() ? SIGKILL : SIGSTOP);
    if (kills()) co_return;
    while (!world_.is_suspect(1)) co_await mw::sleep_for(1ms);
    figures_.suspect_ms.add(since_fault());
  }
  double since_fault() const { return ms_from_fault(now_ns()); }
  double ms_from_fault(std::int64_t then) const {
    return static_cast<double>(then - struck_) / 1e6;
  }

  gpu_member& member_;
  const kill_options& options_;
  bystander& beside_;
  mw::world world_;
  std::optional<freeing_thread> application_;
  std::int64_t struck_ = 0;
  fault_figures figures_;
};

fields row_of(const kill_options& o, const fault_figures& f) {
  fields row{{"bench", "kill"}, {"fault", o.fault}, {"repeats", f.back_ms.count()}};
  // Null: there was no such thread.
  row["in_free"] = o.frees ? fields(f.stood) : fields();
  if (!f.freed_ms.empty()) row["freed_ms"] = f.freed_ms.median();
  if (!f.suspect_ms.empty()) row["suspect_ms"] = f.suspect_ms.median();
  row["error_ms"] = f.error_ms.median();
  row["error_max_ms"] = f.error_ms.largest();
  row["back_ms"] = f.back_ms.median();
  row["back_max_ms"] = f.back_ms.largest();
  row["beside_p50_us"] = f.fault_gap_us.median();
  row["beside_max_us"] = f.fault_gap_us.largest();
  row["quiet_p50_us"] = f.quiet_gap_us.median();
  row["quiet_max_us"] = f.quiet_gap_us.largest();
  return row;
}

mw::task<void> lead(gpu_member& g, const kill_options& o, report& out) {
  g.tell(out);
  bystander beside(g);
  co_await beside.ready();
  faults all(g, o, beside);
  co_await mw::when_any(all.run(), beside.work());
  g.row(out, row_of(o, all.figures()));
}

mw::task<void> be_victim(gpu_member& g, int number) {
  mw::world w = g.describe(name_of(number), 2);
  co_await w;
  co_await w.device_ready();
  co_await park(w, 0, {});
}

}  // namespace

void kill(const common_options& common, const kill_options& options) {
  gpu_member g(common, rank_in(common.role));
  report out(common.json, "nccl");
  if (common.leads()) {
    g.runtime().run(lead(g, options, out));
  } else {
    constexpr std::size_t prefix = std::string_view("victim").size();
    g.runtime().run(be_victim(g, std::stoi(common.role.substr(prefix))));
  }
}

}  // namespace mwbench
