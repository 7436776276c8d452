// What both models do with rows of numbers.

export function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

export function softmax(row) {
  let most = -Infinity, sum = 0;
  for (const v of row) most = Math.max(most, v);
  for (let j = 0; j < row.length; j++) sum += row[j] = Math.exp(row[j] - most);
  for (let j = 0; j < row.length; j++) row[j] /= sum;
  return row;
}
