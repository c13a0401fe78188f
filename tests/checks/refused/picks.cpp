// says: pick takes a std::span<const mw::worker_status>
mw::task<void> all(mw::dispatcher& workers) {
#ifdef WRONG
  auto replies = co_await workers.call(std::string_view("x"), [&] { return 0; });
#else
  auto replies =
      co_await workers.call(std::string_view("x"), [&](auto all) { return all.size(); });
#endif
  (void)replies;
}
