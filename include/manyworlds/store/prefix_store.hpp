// Prefix store: a view of a store in which every key stands under a prefix.
#pragma once

#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Joins as PyTorch's PrefixStore does: prefix + "/" + key. Lifetime: it does not own
/// the store below, which must outlive it. Errors: those of the store below, which name
/// the keys as it has them.
///
///     mw::tcp_store shared(rt, "node1:29500");
///     mw::prefix_store store("job17", shared);
///     co_await store.set("ready", "yes");  // the key "job17/ready" of the other
class prefix_store final : public store {
 public:
  prefix_store(std::string prefix, store& under)
      : prefix_(std::move(prefix) + "/"), under_(under) {}
  ~prefix_store() override { end_users(); }

  [[nodiscard]] std::string address() const override { return under_.address(); }
  [[nodiscard]] std::string trouble() const override { return under_.trouble(); }
  task<store_reply> perform(store_request request) override {
    for (std::string& key : request.keys) key.insert(0, prefix_);
    return under_.perform(std::move(request));
  }

 private:
  std::string prefix_;
  store& under_;
};

}  // namespace manyworlds::inline v0
