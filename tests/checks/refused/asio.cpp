// An asio::awaitable takes no foreign awaitable.
// cases: 4
// both: -DASIO_HAS_CO_AWAIT -DASIO_HAS_STD_COROUTINE
// says: co_await mw::asio_await(rt.home(), op, asio::use_awaitable)
#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>
#include <manyworlds/interop/asio.hpp>
#include <manyworlds/mw.hpp>

using namespace std::chrono_literals;

mw::task<int> three() { co_return 3; }
asio::awaitable<void> all(mw::runtime& rt, mw::world& w, std::vector<float>& x) {
#ifndef WRONG
  co_await mw::asio_await(rt.home(), w.send(x, mw::to{1}), asio::use_awaitable);
  co_await mw::asio_await(rt.home(), three(), asio::use_awaitable);
#elif WRONG == 1
  co_await w.send(x, mw::to{1});
#elif WRONG == 2
  co_await three();
#elif WRONG == 3
  co_await mw::sleep_for(1s);
#elif WRONG == 4
  co_await mw::within(three(), 1s);
#endif
  (void)rt, (void)w, (void)x;
}
