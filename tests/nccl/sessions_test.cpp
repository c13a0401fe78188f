// Sessions on devices: each worker has one, and its meshes have communicators.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "gpu_worlds.hpp"
#include "manyworlds/launch.hpp"
#include "manyworlds/spmd.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

constexpr const char* program_case = "the program of a session's workers";
constexpr const char* shares_device = "MANYWORLDS_TEST_SHARES_DEVICE";

inline constexpr remote_function<int()> device_here{"device_here", alone};
/// A tensor on the worker's device, of the number and the worker's id.
inline constexpr remote_function<tensor(float)> filled{"filled", alone};
/// Sums of all workers, in a new tensor.
inline constexpr remote_function<tensor(const tensor&)> summed{"summed"};
/// The same, entered later, or not at all, by the worker of that id. What is matched
/// waits for it in the library, what is not in NCCL's kernel.
inline constexpr remote_function<tensor(const tensor&, int, int, bool)> late{"late"};
inline constexpr remote_function<tensor(const tensor&, int, bool)> throws{"throws"};
inline constexpr remote_function<int(const tensor&)> device_of{"device_of", alone};
/// A tensor of a blocking function, of which only the shape is known.
inline constexpr remote_function<tensor(shape)> made_by_blocking{"made_by_blocking",
                                                                 alone};

task<tensor> sum_up(worker& me, const tensor& x, bool is_matched = true) {
  tensor y = co_await me.copy_of(x);
  if (is_matched) {
    co_await me.world().all_reduce(y, sum);
  } else {
    co_await me.world().all_reduce(y.device_view(), sum).unmatched();
  }
  co_return y;
}

const function_table& functions() {
  static const function_table all{
      {device_here,
       [](const worker& me) { return me.stream() ? me.place().device : -1; }},
      {filled,
       [](const worker& me, float by) -> task<tensor> {
         tensor host({4, 25}, dtype::float32);
         for (float& each : host.as<float>()) each = by + static_cast<float>(me.id());
         co_return co_await me.copy_of(host);
       }},
      {summed, [](worker& me, const tensor& x) { return sum_up(me, x); }},
      {late,
       [](worker& me, const tensor& x, int which, int time,
          bool is_matched) -> task<tensor> {
         if (me.id() == which) co_await sleep_for(std::chrono::milliseconds(time));
         co_return co_await sum_up(me, x, is_matched);
       }},
      {throws,
       [](worker& me, const tensor& x, int which, bool is_matched) -> task<tensor> {
         // The other waits in NCCL's kernel, or is about to.
         if (me.id() == which) {
           co_await sleep_for(50ms);
           throw std::runtime_error("asked to fail");
         }
         co_return co_await sum_up(me, x, is_matched);
       }},
      {device_of, [](const tensor& x) { return x.place().device; }},
      {made_by_blocking, blocking([](const worker& me, const shape& of) {
         return me.new_tensor(of, dtype::float32);
       })},
  };
  return all;
}

/// Two workers, each with a device of its own or, in processes, on one that they share.
session_options on_devices() {
  session_options limits;
  limits.backend = backend_kind::nccl;
  if (devices_here() < 2) limits.devices = "0,0";
  return limits;
}

process_options worker_program() {
  process_options how(std::filesystem::read_symlink("/proc/self/exe").string());
  how.argument(std::string("--test-case=") + program_case);
  how.argument("--no-skip");
  how.argument("--minimal");
  if (devices_here() < 2) how.set(shares_device, "1");
  return how;
}

enum class kind { threads, processes };

/// Runs `body(session&)` within a time.
template <class Body>
void in_session(kind which, Body body, session_options limits = on_devices()) {
  runtime rt;
  const process_options how = worker_program();
  const auto whole = [&]() -> task<void> {
    std::optional<session> s;
    if (which == kind::threads) {
      s = co_await session::start(rt, threads(2, functions(), limits));
    } else {
      s = co_await session::start(rt,
                                  processes{.workers = 2, .how = &how, .limits = limits});
    }
    co_await body(*s);
    co_await s->close();
  };
  const auto in_time = [&]() -> task<void> { co_await within(whole(), patience); };
  rt.run(in_time());
}

/// Ranks in one process need a device each.
template <class Body>
void in_each_kind(Body body) {
  in_session(kind::processes, body);
  if (devices_here() >= 2) in_session(kind::threads, body);
}

/// The one value that all elements have; nothing if they differ.
std::optional<float> value_of(const tensor& x) {
  if (x.shape() != shape({4, 25})) return std::nullopt;
  const auto all = x.as<float>();
  for (const float each : all) {
    if (each != all[0]) return std::nullopt;
  }
  return all[0];
}

/// What both workers get as the sum of `first` at each of them and their ids.
task<void> check_sum(const session& s, float first) {
  const auto x = co_await s.call(filled, first);
  const std::vector<tensor> sums = co_await s.call(summed, x).all();
  REQUIRE(sums.size() == 2);
  for (const tensor& each : sums) CHECK(value_of(each) == 2 * first + 1);
}

struct ended_call {
  enum cause cause = cause::none;
  std::string text;
};

template <class Call>
task<ended_call> error_of(Call call) {
  try {
    static_cast<void>(co_await std::move(call));
  } catch (const call_error& e) {
    co_return ended_call{e.cause(), e.what()};
  }
  co_return ended_call{};
}

/// The floats that a worker's tensor has.
task<floats> at(const mesh& of, const dref<tensor>& x, int worker) {
  const tensor copy = co_await of.copy_from(x, worker);
  CHECK(copy.place().is_host());
  co_return floats(copy.as<float>().begin(), copy.as<float>().end());
}

task<void> check_on_devices(const session& s, const dref<tensor>& x) {
  const std::vector<int> devices = co_await s.call(device_of, x).all();
  const std::vector<int> own = co_await s.call(device_here).all();
  CHECK(devices == own);
}

/// Disco A16 to A29: what stays on workers is on their devices, and moves between them.
task<void> check_data(const session& s) {
  const floats six = ramp(6, 1);
  const dref<tensor> x = co_await s.put(six);
  co_await check_on_devices(s, x);
  co_await s.all_reduce(x, sum);
  floats doubled = six;
  for (float& each : doubled) each *= 2;
  CHECK(co_await at(s, x, 1) == doubled);
  const tensor other = tensor::copy_of(six);
  co_await s.copy_to(x, 1, other);
  CHECK(co_await at(s, x, 1) == six);
  CHECK(co_await at(s, x, 0) != six);
  co_await s.broadcast(x, 1);
  CHECK(co_await at(s, x, 0) == six);

  // More than zeros are copied from at a time.
  const dref<tensor> large = co_await s.empty(shape(200'000), dtype::float32);
  co_await check_on_devices(s, large);
  CHECK(co_await at(s, large, 1) == floats(200'000));
  const dref<tensor> half = co_await s.empty(shape(3), dtype::float32);
  co_await s.scatter(x, half);
  CHECK(co_await at(s, half, 1) == ramp(3, 4));
  const dref<tensor> whole = co_await s.empty(shape(6), dtype::float32);
  co_await s.all_gather(half, whole);
  CHECK(co_await at(s, whole, 0) == six);
  const dref<tensor> gathered = co_await s.empty(shape(6), dtype::float32);
  co_await s.gather(half, gathered, 1);
  CHECK(co_await at(s, gathered, 1) == six);
  CHECK(co_await at(s, gathered, 0) == floats(6));
  co_await s.transfer(half, 1, half, 0);
  CHECK(co_await at(s, half, 0) == ramp(3, 4));

  const dref<tensor> none = co_await s.empty(shape(0), dtype::float32);
  CHECK((co_await at(s, none, 0)).empty());
  // A register of which only the worker knows that it is a tensor.
  const dref<any_value> unknown = co_await s.call(any_function("filled"), 3.0F);
  const any_value found = co_await s.copy_from(unknown, 1);
  CHECK(value_of(found.as<tensor>()) == 4);
  const shape wanted(3, 4);
  const tensor made = co_await s.call(made_by_blocking, wanted).from(1);
  CHECK(made.shape() == wanted);
}

task<void> until_lost(const session& s, int worker) {
  while (s.describe(worker).state != worker_state::lost) co_await sleep_for(1ms);
}

bool has(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

/// Worker 1 is killed while the other waits for it.
task<void> check_kill(const session& s, bool is_matched) {
  const auto x = co_await s.call(filled, 1);
  const mesh first = s.mesh({0});
  CHECK(value_of(co_await first.call(summed, x).from(0)) == 1);
  const auto pid = static_cast<pid_t>(s.describe(1).pid);
  REQUIRE(pid > 0);
  auto killing = [&]() -> task<void> {
    co_await sleep_for(100ms);
    ::kill(pid, SIGKILL);
  };
  auto entering = [&]() -> task<ended_call> {
    co_return co_await error_of(s.call(late, x, 1, 60'000, is_matched).within(30s));
  };
  const auto both = co_await when_all(killing(), entering());
  const ended_call& failed = std::get<1>(both);
  CHECK(failed.cause == cause::peer_died);
  // What ended a process is waited for, on a machine that is too busy not long enough.
  CHECK_MESSAGE((has(failed.text, "SIGKILL") || has(failed.text, "died")), failed.text);
  co_await until_lost(s, 1);
  CHECK(value_of(co_await first.call(summed, x).from(0)) == 1);
}

/// What a session says that does not start.
std::string refusal(session_options limits, kind which = kind::processes) {
  try {
    in_session(
        which, [](session&) -> task<void> { co_return; }, limits);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

// Not a test: these processes are started by those below.
TEST_CASE("the program of a session's workers" * doctest::skip()) {
  if (std::getenv("MANYWORLDS_SESSION") == nullptr) return;
  // To NCCL each is a host of its own then.
  if (std::getenv(shares_device) != nullptr)
    ::setenv("NCCL_HOSTID", std::to_string(::getpid()).c_str(), 1);
  const char* const self[] = {"session-worker"};
  std::_Exit(worker_main(functions(), 1, self));
}

TEST_SUITE("sessions on devices") {
  TEST_CASE("sessions: each worker has a device, and sums are right on it") {
    NEEDS_DEVICE();
    in_each_kind([](session& s) -> task<void> {
      const std::vector<int> devices = co_await s.call(device_here).all();
      CHECK(devices.size() == 2);
      CHECK(devices[0] == 0);
      CHECK(devices[1] == (devices_here() < 2 ? 0 : 1));
      co_await check_sum(s, 3);
      // A mesh of one worker has a communicator of its own.
      const auto x = co_await s.call(filled, 5);
      const tensor alone = co_await s.mesh({1}).call(summed, x).from(1);
      CHECK(value_of(alone) == 6);
    });
  }

  TEST_CASE("sessions: tensors of the built-in functions lie on devices") {
    NEEDS_DEVICE();
    in_each_kind([](session& s) -> task<void> { co_await check_data(s); });
  }

  TEST_CASE(
      "sessions, S-b: a worker that throws ends the others' collective on devices") {
    NEEDS_DEVICE();
    in_each_kind([](session& s) -> task<void> {
      const auto x = co_await s.call(filled, 1);
      for (int i = 0; i < 4; ++i) {
        const ended_call failed = co_await error_of(s.call(throws, x, i / 2, i % 2 == 0));
        CHECK(failed.cause == cause::handler_failed);
        CHECK(has(failed.text, "asked to fail"));
        co_await check_sum(s, 2);
      }
    });
  }

  TEST_CASE("sessions, S-b: a collective on devices that is given up ends everywhere") {
    NEEDS_DEVICE();
    in_each_kind([](session& s) -> task<void> {
      const auto x = co_await s.call(filled, 1);
      for (const bool is_matched : {true, false}) {
        const ended_call failed =
            co_await error_of(s.call(late, x, 1, 60'000, is_matched).within(100ms));
        CHECK(failed.cause == cause::timed_out);
        co_await check_sum(s, 4);
      }
    });
  }

  TEST_CASE(
      "sessions, S-e: a worker that is killed in a collective on devices is an error, "
      "and its replacement adds up with the others") {
    NEEDS_DEVICE();
    in_session(kind::processes, [](session& s) -> task<void> {
      for (const bool is_matched : {true, false}) {
        co_await check_sum(s, 1);
        co_await check_kill(s, is_matched);
        co_await s.respawn(1);
        co_await check_sum(s, 7);
      }
    });
  }

  TEST_CASE("sessions: a worker without its device keeps its session from starting") {
    NEEDS_DEVICE();
    session_options limits = on_devices();
    limits.devices = "0,4000";
    const std::string text = refusal(limits);
    CAPTURE(text);
    CHECK(has(text, "worker 1: "));
    CHECK(has(text, "worker 1 is to have device 4000, and its process sees"));
    CHECK_FALSE(has(text, "worker 0: "));
    if (devices_here() < 2) return;
    CHECK(has(refusal(limits, kind::threads), "device 4000"));
  }
}
