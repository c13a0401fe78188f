#include "manyworlds/store/tcp_store.hpp"

#include <charconv>
#include <stdexcept>
#include <utility>

#include "manyworlds/store/run_on.hpp"
#include "store/tcp_store_client.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

std::string checked_endpoint(std::string endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  unsigned port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* end = endpoint.data() + endpoint.size();
    const auto parsed = std::from_chars(endpoint.data() + colon + 1, end, port);
    if (parsed.ec == std::errc() && parsed.ptr == end && port > 0 && port < 65536) {
      return endpoint;
    }
  }
  throw std::invalid_argument("store endpoint \"" + endpoint +
                              "\": give host:port, such as 127.0.0.1:29500");
}

reactor& reactor_of(executor& home) {
  if (reactor* const found = home.as_reactor()) return *found;
  throw std::invalid_argument("a store that speaks tcp lives on a reactor");
}

// The server counts the "/" in front of each key.
store_limits with_slash(store_limits limits) {
  limits.key_bytes -= limits.key_bytes > 0 ? 1 : 0;
  return limits;
}

/// Keeps the client until the operation has ended, also beyond the store itself.
template <class Client>
task<store_reply> run_there(reactor& home, std::shared_ptr<Client> client,
                            store_request request,
                            tcp_store_names names = tcp_store_names::with_slash) {
  co_return co_await run_on(home, client->run(std::move(request), names));
}

template <class Client>
task<std::int64_t> count_there(reactor& home, std::shared_ptr<Client> client,
                               duration limit) {
  store_request one_more(store_operation::add, {"init/"}, limit);
  one_more.delta = 1;
  const store_reply reply =
      co_await run_there(home, client, std::move(one_more), tcp_store_names::as_they_are);
  co_return reply.number;
}

}  // namespace

tcp_store::tcp_store(executor& home, std::string endpoint, tcp_store_options options)
    : home_(reactor_of(home)),
      endpoint_(checked_endpoint(std::move(endpoint))),
      options_(options),
      client_(std::make_shared<client>(home_, endpoint_, options)) {}

tcp_store::~tcp_store() { end_users(); }

std::string tcp_store::trouble() const { return client_->trouble(); }

task<store_reply> tcp_store::perform(store_request request) {
  check_limits(request, with_slash(options_.limits), address());
  return run_there(home_, client_, std::move(request));
}

task<std::int64_t> tcp_store::count_worker(duration limit) {
  return count_there(home_, client_, limit);
}

}  // namespace manyworlds::inline v0
