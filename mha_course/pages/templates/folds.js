// Second readings: opened for browsers that do not do so themselves; and on paper nothing is folded.
(() => {
  const named = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } };
  const open = () => {
    const place = document.getElementById(named()); // not ":target", which comes after DOMContentLoaded
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
