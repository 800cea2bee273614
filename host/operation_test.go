package host

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/call"
)

// Operations are checked where they lie, so what is checked has the fields of an operation at the same places.
func TestOperationsBeginWithTheirArguments(t *testing.T) {
	operation, arguments := reflect.TypeFor[Operation](), reflect.TypeFor[call.Arguments]()
	for i := range arguments.NumField() {
		a, o := arguments.Field(i), operation.Field(i)
		require.Equal(t, [2]any{a.Name, a.Offset}, [2]any{o.Name, o.Offset})
		switch a.Name {
		case "DeviceCounts":
			require.True(t, o.Type.ConvertibleTo(a.Type), "%s and %s differ", o.Type, a.Type)
		case "Window":
			first := o.Type.Elem().Field(0)
			require.Equal(t, a.Type.Elem(), first.Type, "a window begins with the facts that are checked")
			require.Zero(t, first.Offset)
		default:
			require.Equal(t, a.Type, o.Type, "%s", a.Name)
		}
	}
	require.Equal(t, "Stream", operation.Field(arguments.NumField()).Name, "an operation has one more field")
	require.Equal(t, arguments.NumField()+1, operation.NumField())
}
