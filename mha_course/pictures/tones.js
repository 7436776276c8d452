// A row of numbers to be heard, as an experiment: from left to right, higher for more; a short low click is blocked.

const NOTE = 0.16, LOW = 220, OCTAVES = 2; // seconds of a note; hertz of 0

let audio = null;

export function hush() {
  audio?.close();
  audio = null;
}

// `shares` are 0 to 1, or null where blocked.
export function play(shares) {
  hush();
  const mine = audio = new AudioContext(), start = audio.currentTime + 0.05;
  shares.forEach((share, i) => {
    const tone = audio.createOscillator(), volume = audio.createGain(), at = start + i * NOTE,
      end = at + (share === null ? 0.03 : 0.9 * NOTE);
    tone.frequency.value = share === null ? 80 : LOW * 2 ** (OCTAVES * share);
    tone.type = share === null ? "square" : "sine";
    volume.gain.setValueAtTime(0.2, at);
    volume.gain.exponentialRampToValueAtTime(0.001, end);
    tone.connect(volume).connect(audio.destination);
    tone.start(at);
    tone.stop(end);
  });
  setTimeout(() => { if (audio === mine) hush(); }, 1000 * (shares.length * NOTE + 0.5));
}
