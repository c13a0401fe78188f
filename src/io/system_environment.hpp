// System environment: the machine that a runtime runs on.
#pragma once

#include <string>

#include "io/reactor.hpp"
#include "io/system_process_host.hpp"
#include "manyworlds/io/environment.hpp"

namespace manyworlds::inline v0::detail {

/// Returns this machine's name; "localhost" if it has none.
[[nodiscard]] std::string own_host_name();

/// The machine we run on: io_uring or epoll, getrandom, getpid, real threads.
class system_environment : public environment {
 public:
  [[nodiscard]] engine_choice make_engine(engine_kind kind) override;
  void fill_random(std::span<std::byte> bytes) override;
  [[nodiscard]] process_identity identity() const override;
  [[nodiscard]] bool starts_threads() const noexcept override { return true; }
  [[nodiscard]] process_host* processes() noexcept override { return &processes_; }
  void attach(reactor&) override {}
  void detach(reactor&) noexcept override {}

 private:
  system_process_host processes_;
};

}  // namespace manyworlds::inline v0::detail
