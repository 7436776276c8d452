// Second readings: opened for browsers that do not do so themselves; and on paper nothing is folded.
(() => {
  const open = () => {
    const place = document.querySelector(":target");
    const folded = place && place.closest("details:not([open])");
    if (!folded) return;
    folded.open = true;
    place.scrollIntoView();
  };
  addEventListener("hashchange", open);
  addEventListener("click", (e) => { if (e.target.closest('a[href^="#"]')) setTimeout(open); });
  addEventListener("DOMContentLoaded", open);
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details.second-reading").forEach((d) => { d.open = true; });
  });
})();
