#include "member.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <system_error>

#include "report.hpp"

namespace mwbench {

namespace {

mw::task<void> form(mw::world& w) { co_await w; }

double us(mw::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// `128:3` is three turns of 128 us and more, and less than twice that.
std::string text_of(const mw::time_histogram& times) {
  std::string text;
  for (std::size_t b = 0; b < times.buckets; ++b) {
    if (times.counts[b] == 0) continue;
    if (!text.empty()) text += ' ';
    text += std::to_string(static_cast<std::uint64_t>(us(times.begin_of(b)))) + ':' +
            std::to_string(times.counts[b]);
  }
  return text;
}

/// The processes may be on several hosts. Without a secret the launcher's own network is
/// trusted for minutes.
mw::launch_context job_of(const common_options& common) {
  mw::launch_context job = common.job;
  if (common.has_launcher() && job.secret_file.empty()) job.insecure = true;
  return job;
}

}  // namespace

void member::tell_turns() {
  report out(common_.json, common_.transport());
  const auto tell = [&](std::string_view part, const mw::time_histogram& times) {
    out.row({
        {"bench", "turns"},
        {"transport", common_.transport()},
        {"part", part},
        {"turns", times.count()},
        {"p50_us", us(times.quantile(0.5))},
        {"p99_us", us(times.quantile(0.99))},
        {"longest_us", us(times.longest)},
        {"histogram", text_of(times)},
    });
  };
  const mw::turn_times user = runtime_.turns();
  const mw::turn_times service = runtime_.service_turns();
  tell("library", user.library);
  tell("tasks", user.tasks);
  tell("service", service.library);
  tell("service tasks", service.tasks);
}

mw::runtime_options runtime_options_of(const common_options& common) {
  mw::runtime_options options = job_of(common).runtime();
  options.thread_name = "mwbench";
  options.engine = common.engine;
  options.shared_memory = common.shared_memory;
  options.read_peers = common.read_peers;
  options.mover = common.mover;
  options.spin = std::chrono::microseconds(common.spin_us);
  // Some benchmarks break worlds on purpose.
  options.log_from = mw::log_level::error;
  if (!common.listen.empty()) options.listen = common.listen;
  if (!common.advertise.empty()) options.advertise = common.advertise;
  return options;
}

std::unique_ptr<mw::hosted_store> member::host_store(const common_options& common) {
  if (!common.store.empty() || common.has_launcher()) return nullptr;
  return std::make_unique<mw::hosted_store>(runtime_, "127.0.0.1:0");
}

std::unique_ptr<mw::store> member::reach_store(const common_options& common) {
  if (!common.has_launcher()) return std::make_unique<mw::tcp_store>(runtime_, address_);
  return std::make_unique<mw::launch_store>(runtime_, job_of(common));
}

mw::task<line> plain_connection(mw::world& w) {
  constexpr mw::lane on{1'000'001};
  if (w.rank() == 0) {
    doorway door(w.view().member(0).endpoint.with_port(0));
    const std::uint16_t port = door.address().port();
    co_await w.send_message(port, mw::to{1}, on);
    // The accept does not block: the peer has connected when it says so.
    co_await w.recv_message<bool>(mw::from{1}, on);
    co_return door.accept();
  }
  if (w.rank() != 1) co_return line();
  const auto said = co_await w.recv_message<std::uint16_t>(mw::from{0}, on);
  line made = line::to(w.view().member(0).endpoint.with_port(said.head));
  const bool connected = true;
  co_await w.send_message(connected, mw::to{0}, on);
  co_return made;
}

mw::task<void> form_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> forming;
  for (mw::world& w : worlds) forming.push_back(form(w));
  co_await mw::when_all(std::move(forming));
}

mw::task<void> leave_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> leaving;
  for (mw::world& w : worlds) leaving.push_back(w.leave());
  co_await mw::when_all(std::move(leaving));
}

std::size_t on_shared_memory(const std::vector<mw::world>& worlds) {
  return static_cast<std::size_t>(std::ranges::count_if(
      worlds, [](const mw::world& w) { return w.transport() == "shm"; }));
}

mw::task<void> exchange(mw::world& w, mw::rank_t peer) {
  constexpr mw::lane on{1'000'000};
  std::vector<char> out(64 << 10);
  std::vector<char> in(out.size());
  // Send and receive at once: a send may not be accepted before the peer receives.
  co_await mw::when_all(w.send(out, mw::to{peer}, on), w.recv(in, mw::from{peer}, on));
}

mw::task<void> park(mw::world& w, mw::rank_t peer, mw::lane on) {
  char byte = 0;
  const auto ended =
      co_await mw::outcome(w.recv(std::span(&byte, 1), mw::from{peer}, on));
  if (ended) throw std::logic_error("a parked receive got a message");
  if (ended.error().cause != mw::cause::closed) throw mw::world_error(ended.error());
}

}  // namespace mwbench
