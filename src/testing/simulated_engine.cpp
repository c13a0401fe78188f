#include "testing/simulated_engine.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <algorithm>
#include <utility>

#include "io/posix_network.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t requests_a_poll = 64;

std::string_view name_of_end(io_kind kind) noexcept {
  switch (kind) {
    case io_kind::accept:
      return "accept ended";
    case io_kind::connect:
      return "connect ended";
    case io_kind::receive:
      return "receive ended";
    case io_kind::send:
      return "send ended";
    case io_kind::read_at:
      return "read ended";
    case io_kind::readable:
      break;
  }
  return "readable ended";
}

}  // namespace

void simulated_contract_broken(const simulated_process& p, const char* what,
                               socket_handle socket) noexcept {
  std::fprintf(stderr, "simulated process %s: %s (socket %d)\n", p.name().c_str(), what,
               static_cast<int>(socket));
  std::abort();
}

simulated_engine::simulated_engine(simulated_process& process,
                                   simulated_clockwork& clockwork)
    : process_(process), clockwork_(clockwork) {
  process_.engines_.push_back(this);
}

simulated_engine::~simulated_engine() {
  if (!in_flight_.empty()) {
    const io_request& first = *in_flight_.front();
    const bool is_file = first.kind == io_kind::read_at;
    simulated_contract_broken(process_, "engine destroyed with a request in flight",
                              is_file ? socket_handle::none : first.socket);
  }
  std::erase(process_.engines_, this);
}

void simulated_engine::submit(io_request& request) noexcept {
  if (request.engine.submitted) {
    simulated_contract_broken(process_, "request submitted twice", request.socket);
  }
  request.engine.submitted = true;
  request.engine.cancelled = false;
  if (simulated_socket* s = socket_of(request)) {
    simulated_socket::request_slot& slot = s->slot_of(request.kind);
    if (slot.request) {
      simulated_contract_broken(process_, "a second request of a kind on one socket",
                                request.socket);
    }
    slot = {&request, this};
  }
  in_flight_.push_back(&request);
  noticed_ = true;
}

void simulated_engine::cancel(io_request& request) noexcept {
  if (!request.engine.submitted) return;
  request.engine.cancelled = true;
  noticed_ = true;
}

bool simulated_engine::poll() noexcept {
  count_spinning();
  if (!std::exchange(noticed_, false)) return false;
  perform_some();
  const std::vector<io_request*> ended = std::exchange(performed_, {});
  for (io_request* request : ended) request->ended(*request);
  return !ended.empty();
}

void simulated_engine::wait(std::optional<time_point> until) noexcept {
  if (noticed_) return;
  waiting_ = true;
  process_.simulation_.sleep(*this, until);
  waiting_ = false;
}

// A caller that polls again and again within one step looks at the clock and waits for it
// to move.
void simulated_engine::count_spinning() noexcept {
  if (polled_in_step_ == clockwork_.steps) clockwork_.now += std::chrono::microseconds(1);
  polled_in_step_ = clockwork_.steps;
}

void simulated_engine::perform_some() {
  std::vector<io_request*> candidates = in_flight_;
  for (std::size_t left = candidates.size(); left > 0; --left) {
    const std::size_t chosen = static_cast<std::size_t>(clockwork_.random.below(left));
    std::swap(candidates[chosen], candidates[left - 1]);
    io_request& request = *candidates[left - 1];
    MW_ASSERT(request.engine.submitted, "a request in flight has not ended");
    const bool later = performed_.size() >= requests_a_poll ||
                       (clockwork_.options.late_requests && !process_.is_dead() &&
                        clockwork_.random.one_in(8));
    if (later) {
      noticed_ = true;
      continue;
    }
    const std::optional<io_result> result = try_to_end(request);
    if (!result) continue;
    request.result = *result;
    request.engine.submitted = false;
    if (simulated_socket* s = socket_of(request)) {
      simulated_socket::request_slot& slot = s->slot_of(request.kind);
      if (slot.request == &request) slot = {};
    }
    std::erase(in_flight_, &request);
    performed_.push_back(&request);
    // A descriptor's number is none of the seed's.
    const bool is_file = request.kind == io_kind::read_at;
    clockwork_.record(process_.name_, name_of_end(request.kind),
                      is_file ? 0 : static_cast<int>(request.socket),
                      result->ok() ? result->count()
                                   : static_cast<std::uint64_t>(result->error()) << 32);
  }
}

std::optional<io_result> simulated_engine::try_to_end(io_request& request) {
  if (process_.is_dead()) {
    return io_result::failure(request.kind == io_kind::send ? EPIPE : ECANCELED);
  }
  if (!request.engine.cancelled) return attempt_now(request);
  // The cancellation races with the operation itself, and either may win.
  if (clockwork_.random.one_in(2)) {
    if (const auto result = attempt_now(request)) return result;
  }
  return io_result::failure(ECANCELED);
}

/// Returns null for a file: its descriptor may have a socket's number.
simulated_socket* simulated_engine::socket_of(const io_request& request) const noexcept {
  if (request.kind == io_kind::read_at) return nullptr;
  return process_.network_.find(process_, request.socket);
}

std::optional<io_result> simulated_engine::attempt_now(io_request& request) {
  if (request.kind == io_kind::read_at) return read_some(request);
  return process_.network_.attempt(process_, request);
}

io_result simulated_engine::read_some(const io_request& request) {
  io_request part(request.ended);
  part.kind = request.kind;
  part.socket = request.socket;
  part.offset = request.offset;
  iovec first{};
  const bool is_cut = clockwork_.options.short_transfers && request.buffer_count > 0 &&
                      request.buffers->iov_len > 1 && clockwork_.random.one_in(4);
  if (is_cut) {
    first = *request.buffers;
    first.iov_len = 1 + clockwork_.random.below(first.iov_len - 1);
  }
  part.buffers = is_cut ? &first : request.buffers;
  part.buffer_count = is_cut ? 1 : request.buffer_count;
  return attempt(part);
}

// ---------------------------------------------------------------------------------------

io_result simulated_sockets::listen(const socket_address& address, int backlog) {
  return process_.network_.listen(process_, address, backlog);
}

io_result simulated_sockets::open_stream(const socket_address& peer) {
  return process_.network_.open_stream(process_, peer);
}

void simulated_sockets::close(socket_handle socket) noexcept {
  process_.network_.close(process_, socket);
}

void simulated_sockets::shut_down_sending(socket_handle socket) noexcept {
  if (!process_.is_dead()) process_.network_.shut_down_sending(socket);
}

void simulated_sockets::send_byte(socket_handle socket) noexcept {
  process_.network_.send_byte(process_, socket);
}

bool simulated_sockets::has_ended(socket_handle socket) noexcept {
  return process_.network_.has_ended(process_, socket);
}

socket_address simulated_sockets::local_address(socket_handle socket) const {
  const simulated_socket* s = process_.network_.find(process_, socket);
  return s ? s->local : socket_address{};
}

socket_address simulated_sockets::peer_address(socket_handle socket) const {
  const simulated_socket* s = process_.network_.find(process_, socket);
  return s ? s->peer : socket_address{};
}

}  // namespace manyworlds::inline v0::detail
