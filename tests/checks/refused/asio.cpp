// An asio::awaitable takes no foreign awaitable.
// marks: every wrong line
// both: -DASIO_HAS_CO_AWAIT -DASIO_HAS_STD_COROUTINE
#include <asio/awaitable.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <manyworlds/interop/asio.hpp>
#include <manyworlds/mw.hpp>

using namespace std::chrono_literals;
using floats = std::vector<float>;
template <class Executor = asio::any_io_executor>
using none = asio::awaitable<void, Executor>;
using strand = asio::strand<asio::system_executor>;
using other_strand = asio::strand<asio::any_io_executor>;

mw::task<int> three() { co_return 3; }
// clang-format off
#ifdef WRONG
none<> a(mw::world& w, floats& x) { co_await w.send(x, mw::to{1}); }  // refused: co_await mw::asio_await(rt.home(), op, asio::use_awaitable)
none<asio::system_executor> b() { co_await three(); }                                      // refused: co_await mw::asio_await(rt.home(), op, asio::use_awaitable)
none<strand> c() { co_await mw::sleep_for(1s); }                            // refused: co_await mw::asio_await(rt.home(), op, asio::use_awaitable)
none<other_strand> d() { co_await mw::within(three(), 1s); }                      // refused: co_await mw::asio_await(rt.home(), op, asio::use_awaitable)
// clang-format on
#else
none<> all(mw::runtime& rt, mw::world& w, floats& x) {
  co_await mw::asio_await(rt.home(), w.send(x, mw::to{1}), asio::use_awaitable);
  co_await mw::asio_await(rt.home(), three(), asio::use_awaitable);
}
#endif
