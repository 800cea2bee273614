package executor

import "github.com/shunt-ccl/shunt/plugin"

// form is what a register holds: add + mul*((r+pre) & mask), where r is a register
// of the short form, which is never negative. mul is 0 where it is a constant.
// That much is needed to say which slot of a ring comes next.
type form struct {
	register uint8
	pre      int64
	mask     int64 // -1, or a power of two less one
	mul, add int64
}

// of is the form's value.
func (f *form) of(registers *[quickRegisters]int64) int64 {
	return f.add + f.mul*((registers[f.register%quickRegisters]+f.pre)&f.mask)
}

func constant(v int64) form { return form{add: v} }

// bounds are the least and the most that a form can be, if it has bounds.
func (f form) bounds() (least, most int64, ok bool) {
	switch {
	case f.mul == 0:
		return f.add, f.add, true
	case f.mask < 0 || f.mask > 1<<30 || f.mul < 0 || f.mul > 1<<30 || f.add < -1<<61 || f.add > 1<<61:
		return 0, 0, false
	}
	return f.add, f.add + f.mul*f.mask, true
}

// plus is a form and a constant.
func (f form) plus(v int64) form {
	if f.mul == 1 && f.mask == -1 && f.add == 0 {
		f.pre += v
	} else {
		f.add += v
	}
	return f
}

// set is what a set step makes. Registers wrap, as they do in C.
func (s *shortening) set(step *plugin.Step) (value, bool) {
	a, ok := s.form(step.A)
	if !ok {
		return value{}, false
	}
	if step.Alu == plugin.AluMov {
		return value{form: a}, true
	}
	b, ok := s.form(step.B)
	if !ok {
		return value{}, false
	}
	if a.mul == 0 && b.mul == 0 {
		return s.fold(step, a.add, b.add)
	}
	if a.mul == 0 { // what is not known comes first
		switch step.Alu {
		case plugin.AluAdd, plugin.AluMul, plugin.AluEq, plugin.AluNe:
			a, b = b, a
		}
	}
	if b.mul != 0 || a.mul == 0 {
		return value{}, false
	}
	k := b.add
	switch step.Alu {
	case plugin.AluAdd:
		return value{form: a.plus(k)}, true
	case plugin.AluSub:
		return value{form: a.plus(-k)}, true
	case plugin.AluMul:
		a.mul *= k
		a.add *= k
		if a.mul == 0 {
			a = constant(a.add)
		}
		return value{form: a}, true
	case plugin.AluMod:
		// r+pre is not negative, so this is a mask.
		if k <= 0 || k&(k-1) != 0 || a.mask != -1 || a.mul != 1 || a.add != 0 || a.pre < 0 || a.pre > 1<<30 {
			return value{}, false
		}
		a.mask = k - 1
		return value{form: a}, true
	case plugin.AluEq:
		return value{form: a.plus(-k), kind: isZero}, true
	case plugin.AluNe:
		return value{form: a.plus(-k), kind: isntZero}, true
	}
	return value{}, false
}

// fold is a set step of constants.
func (s *shortening) fold(step *plugin.Step, a, b int64) (value, bool) {
	truth := func(t bool) (value, bool) {
		if t {
			return value{form: constant(1)}, true
		}
		return value{}, true
	}
	result := int64(0)
	switch step.Alu {
	case plugin.AluAdd:
		result = a + b
	case plugin.AluSub:
		result = a - b
	case plugin.AluMul:
		result = a * b
	case plugin.AluDiv: // Go's wraps for -1 as C's does here
		if b != 0 {
			result = a / b
		}
	case plugin.AluMod:
		if b != 0 {
			result = a % b
		}
	case plugin.AluMin:
		result = min(a, b)
	case plugin.AluMax:
		result = max(a, b)
	case plugin.AluLt:
		return truth(a < b)
	case plugin.AluLe:
		return truth(a <= b)
	case plugin.AluEq:
		return truth(a == b)
	case plugin.AluNe:
		return truth(a != b)
	case plugin.AluSelect:
		c, ok := s.form(step.C)
		if a != 0 {
			return value{form: constant(b)}, true
		}
		return value{form: c}, ok
	default:
		return value{}, false
	}
	return value{form: constant(result)}, true
}
