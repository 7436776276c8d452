;; A linear layer on four tokens and two outputs at a time: y (T, n) = x (T, m) Wᵀ + b, float32.
;; T and m are multiples of 4, n of 2. `tools/kernel.py` makes kernel.wasm of this.
(module
 (import "page" "memory" (memory 1))

 (func $sum (param $v v128) (result f32)
  (f32.add
   (f32.add (f32x4.extract_lane 0 (local.get $v)) (f32x4.extract_lane 1 (local.get $v)))
   (f32.add (f32x4.extract_lane 2 (local.get $v)) (f32x4.extract_lane 3 (local.get $v)))))

 ;; The outputs of one token: y[0] = Σ c + b[0], y[1] = Σ d + b[1].
 (func $put (param $y i32) (param $b i32) (param $c v128) (param $d v128)
  (f32.store (local.get $y) (f32.add (call $sum (local.get $c)) (f32.load (local.get $b))))
  (f32.store offset=4 (local.get $y)
   (f32.add (call $sum (local.get $d)) (f32.load offset=4 (local.get $b)))))

 (func (export "linear") (param $x i32) (param $T i32) (param $m i32)
   (param $w i32) (param $n i32) (param $b i32) (param $y i32)
  (local $row i32) (local $line i32) (local $last i32)  ;; bytes of a row of x and W, and of y
  (local $t i32) (local $p i32) (local $q i32) (local $o i32) (local $end i32)
  (local $u v128) (local $v v128) (local $z v128)
  (local $c0 v128) (local $c1 v128) (local $c2 v128) (local $c3 v128)
  (local $d0 v128) (local $d1 v128) (local $d2 v128) (local $d3 v128)
  (local.set $row (i32.shl (local.get $m) (i32.const 2)))
  (local.set $line (i32.shl (local.get $n) (i32.const 2)))
  (local.set $last (i32.add (local.get $b) (local.get $line)))
  (loop $outputs
   (local.set $t (i32.const 0))
   (local.set $p (local.get $x))
   (local.set $o (local.get $y))
   (loop $tokens
    (local.set $c0 (v128.const i32x4 0 0 0 0)) (local.set $c1 (local.get $c0))
    (local.set $c2 (local.get $c0)) (local.set $c3 (local.get $c0))
    (local.set $d0 (local.get $c0)) (local.set $d1 (local.get $c0))
    (local.set $d2 (local.get $c0)) (local.set $d3 (local.get $c0))
    (local.set $q (local.get $w))
    (local.set $end (i32.add (local.get $w) (local.get $row)))
    (loop $inputs
     (local.set $u (v128.load (local.get $q)))
     (local.set $v (v128.load (i32.add (local.get $q) (local.get $row))))
     (local.set $z (v128.load (local.get $p)))
     (local.set $c0 (f32x4.add (local.get $c0) (f32x4.mul (local.get $u) (local.get $z))))
     (local.set $d0 (f32x4.add (local.get $d0) (f32x4.mul (local.get $v) (local.get $z))))
     (local.set $z (v128.load (i32.add (local.get $p) (local.get $row))))
     (local.set $c1 (f32x4.add (local.get $c1) (f32x4.mul (local.get $u) (local.get $z))))
     (local.set $d1 (f32x4.add (local.get $d1) (f32x4.mul (local.get $v) (local.get $z))))
     (local.set $z (v128.load
      (i32.add (local.get $p) (i32.shl (local.get $row) (i32.const 1)))))
     (local.set $c2 (f32x4.add (local.get $c2) (f32x4.mul (local.get $u) (local.get $z))))
     (local.set $d2 (f32x4.add (local.get $d2) (f32x4.mul (local.get $v) (local.get $z))))
     (local.set $z (v128.load
      (i32.add (local.get $p) (i32.mul (local.get $row) (i32.const 3)))))
     (local.set $c3 (f32x4.add (local.get $c3) (f32x4.mul (local.get $u) (local.get $z))))
     (local.set $d3 (f32x4.add (local.get $d3) (f32x4.mul (local.get $v) (local.get $z))))
     (local.set $p (i32.add (local.get $p) (i32.const 16)))
     (br_if $inputs (i32.lt_u
      (local.tee $q (i32.add (local.get $q) (i32.const 16))) (local.get $end))))
    (local.set $p (i32.add (local.get $p) (i32.mul (local.get $row) (i32.const 3))))
    (call $put (local.get $o) (local.get $b) (local.get $c0) (local.get $d0))
    (local.set $o (i32.add (local.get $o) (local.get $line)))
    (call $put (local.get $o) (local.get $b) (local.get $c1) (local.get $d1))
    (local.set $o (i32.add (local.get $o) (local.get $line)))
    (call $put (local.get $o) (local.get $b) (local.get $c2) (local.get $d2))
    (local.set $o (i32.add (local.get $o) (local.get $line)))
    (call $put (local.get $o) (local.get $b) (local.get $c3) (local.get $d3))
    (local.set $o (i32.add (local.get $o) (local.get $line)))
    (br_if $tokens (i32.lt_u
     (local.tee $t (i32.add (local.get $t) (i32.const 4))) (local.get $T))))
   (local.set $w (i32.add (local.get $w) (i32.shl (local.get $row) (i32.const 1))))
   (local.set $y (i32.add (local.get $y) (i32.const 8)))
   (br_if $outputs (i32.lt_u
    (local.tee $b (i32.add (local.get $b) (i32.const 8))) (local.get $last))))))
