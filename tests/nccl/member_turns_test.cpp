// Places that no honest rank 0 gives: a member refuses them, whatever it had promised.
#include "nccl/member_turns.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <variant>
#include <vector>

#include "host/operations.hpp"
#include "nccl/device_fixture.hpp"
#include "nccl/members.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;
using namespace manyworlds::nccl;

namespace {

struct hears_nothing final : order_mail::reader {
  void read(rank_t, const order_message&) override {}
  void all_read() noexcept override {}
  void must_poll() noexcept override {}
};

struct does_nothing final : launch_queue::office {
  void must_poll() noexcept override {}
  void memory_has_changed() noexcept override {}
};

nccl_backend_options options_of(const device_options& device) {
  nccl_backend_options options;
  options.name = "turns";
  options.epoch = 1;
  options.device = device;
  return options;
}

std::shared_ptr<device> opened(device_registry& registry) {
  auto found = registry.open(first_device(), quick_options());
  if (auto* refused = std::get_if<error_message>(&found)) FAIL(refused->text);
  return std::get<std::shared_ptr<device>>(found);
}

/// Rank 1 of two, with a communicator that is said to be made and is not connected. What
/// it tells rank 0 goes nowhere.
class lonely_member {
 public:
  lonely_member() {
    turns.start([] {});
    turns.set_world(7);
    turns.note_made();
  }
  ~lonely_member() {
    host_tests::flag_work quiet;
    way_.quiesce(quiet);
    home_.run_until([&] { return quiet.runs > 0; });
    ::close(far_);
  }

  /// Has it promise a place, and returns one that it must take.
  launch_place promised(std::uint64_t number) {
    turns.hear(propose_message{number});
    REQUIRE(turns.has_promised());
    // Another world's promise on that GPU is no earlier.
    order_seat later(launch_order::of(device_->ordinal()), nullptr, [] {});
    later.set_world(8);
    return {number, later.promise(1)};
  }

 private:
  std::vector<detail::socket> to_nowhere() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
            0);
    far_ = ends[1];
    std::vector<detail::socket> streams(2);
    streams[0] =
        detail::socket(home_.get().sockets(), static_cast<socket_handle>(ends[0]));
    return streams;
  }

  device_registry registry_;
  reactor_fixture home_{engine_kind::epoll};
  host_tests::recorded_events events_;
  hears_nothing reader_;
  does_nothing office_;
  std::shared_ptr<device> device_ = opened(registry_);
  int far_ = -1;
  host_backend way_{home_.get(), events_, host_backend_options(), rank_t{1},
                    to_nowhere()};

 public:
  membership member{home_.get(), events_, options_of(quick_options()), 1, 2, device_};

 private:
  communicator communicator_{device_, home_.get(), member.options.device, "turns", 1};
  device_jobs jobs_{member};
  order_mail mail_{member, way_, reader_};
  launch_queue launches_{member, communicator_, jobs_, office_};

 public:
  member_turns turns{member, communicator_, mail_, launches_};
};

}  // namespace

TEST_SUITE("gpu turns") {
  TEST_CASE("a place before the device is open is refused: nothing could be launched") {
    NEEDS_DEVICE();
    lonely_member m;
    device_job job;
    job.launch->kind = operation_kind::all_reduce;
    CHECK_THROWS_AS(m.turns.enqueue(job, m.promised(1)), wire_error);
  }

  TEST_CASE("a place behind a change of the memory is refused: it may be away by then") {
    NEEDS_DEVICE();
    lonely_member m;
    device_job change;
    device_job job;
    m.turns.hear(connect_message{m.promised(1)});
    m.turns.hear(places_message{});
    m.member.is_open = true;
    const launch_place place = m.promised(2);
    change.launch->kind = operation_kind::suspend_device;
    m.turns.enqueue(change, {});
    job.launch->kind = operation_kind::all_reduce;
    CHECK_THROWS_AS(m.turns.enqueue(job, place), wire_error);
  }
}
