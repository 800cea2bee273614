package executor

import "github.com/shunt-ccl/shunt/plugin"

// form is the value of a register: add + mul*((r+pre) & mask), where r is a register
// of the short form, which is never negative. mul is 0 where it is a constant.
// That much is needed to say which slot of a ring comes next.
type form struct {
	register uint8
	pre      int64
	mask     int64 // -1, or a power of two less one
	mul, add int64
}

// of returns the form's value.
func (f *form) of(registers *[quickRegisters]int64) int64 {
	return f.add + f.mul*((registers[f.register%quickRegisters]+f.pre)&f.mask)
}

func constant(v int64) form { return form{add: v} }

// bounds returns the least and the most that a form can be, if it has bounds.
func (f form) bounds() (least, most int64, ok bool) {
	switch {
	case f.mul == 0:
		return f.add, f.add, true
	case f.mask < 0 || f.mask > 1<<30 || f.mul < 0 || f.mul > 1<<30 || f.add < -1<<61 || f.add > 1<<61:
		return 0, 0, false
	}
	return f.add, f.add + f.mul*f.mask, true
}

// plus returns a form and a constant.
func (f form) plus(v int64) form {
	if f.mul == 1 && f.mask == -1 && f.add == 0 {
		f.pre += v
	} else {
		f.add += v
	}
	return f
}

// set returns the result of a set step. Registers wrap, as they do in C.
func (s *shortening) set(step *plugin.Step) (value, bool) {
	a, ok := s.form(step.A)
	b, fine := a, true
	if step.Alu != plugin.AluMov {
		b, fine = s.form(step.B)
	}
	if !ok || !fine {
		return value{}, false
	}
	switch {
	case step.Alu == plugin.AluMov:
		return value{form: a}, true
	case step.Alu == plugin.AluSelect && a.mul == 0:
		if a.add != 0 {
			return value{form: b}, true
		}
		c, ok := s.form(step.C)
		return value{form: c}, ok
	case a.mul == 0 && b.mul == 0:
		return value{form: constant(compute(step.Alu, a.add, b.add))}, true
	case a.mul == 0: // what is not known comes first
		a, b = b, a
		switch step.Alu {
		case plugin.AluAdd, plugin.AluMul, plugin.AluEq, plugin.AluNe:
		default:
			return value{}, false
		}
	}
	if b.mul != 0 {
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
